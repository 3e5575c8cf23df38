/* catalogue.c - the catalogue of the tiers' content, kept by the service manager. */
#include "daemon/tiers/tiers.h"

#include "base/log.h"
#include "daemon/fdstore.h"
#include "daemon/notify.h"
#include "daemon/service.h"
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* The names under which the manager keeps it. Version 1 has no number. */
#define OLD_CATALOGUE_NAME "catalogue"
#define CATALOGUE_PREFIX "catalogue-"
#define CATALOGUE_NAME CATALOGUE_PREFIX "2"
_Static_assert(SW_CATALOGUE_VERSION == 2, "its name says so");

/* A service manager restarts the unit at once, and gives up after a number of starts, and then drops the unit's
 * descriptors. The pause prevents this; a signal ends it. */
enum { REFUSED_START_PAUSE_S = 2 };

static int refuse_newer(unsigned long version, struct sw_err *err) {
    const struct timespec pause = {.tv_sec = REFUSED_START_PAUSE_S};
    sw_log(SW_LOG_ERROR, "catalogue.newer",
           "version=%lu known=%u then=\"the service does not start; all regions stay stored\" hint=\"start the later "
           "version of spillwayd again; or stop the unit, which gives up its regions, and start it\"",
           version, SW_CATALOGUE_VERSION);
    (void)nanosleep(&pause, NULL);
    return sw_err_set(err, -SW_EVERSION, SW_SCOPE_DAEMON,
                      "a later version has stored regions (catalogue %lu, here %u): start it, or stop the unit to give "
                      "them up",
                      version, SW_CATALOGUE_VERSION);
}

/* *ret: the valid catalogue; -1: there is none. Two exist if a start was killed or failed after copying the old one;
 * the copy is newer then. */
static int take_catalogue(struct sw_service *service, int *ret, struct sw_err *err) {
    unsigned long newest = 0;
    const char *version;
    *ret = -1;
    for (int fd; (fd = sw_fdstore_take_any(service->fdstore, CATALOGUE_PREFIX, &version)) >= 0;) {
        const unsigned long n = strtoul(version, NULL, 10);
        newest = n > newest ? n : newest;
        if (n == SW_CATALOGUE_VERSION && *ret < 0)
            *ret = fd;
        else
            (void)close(fd);
    }
    if (newest > SW_CATALOGUE_VERSION) {
        if (*ret >= 0)
            (void)close(*ret);
        return refuse_newer(newest, err);
    }
    const int old = sw_fdstore_take(service->fdstore, OLD_CATALOGUE_NAME);
    service->has_old_catalogue = old >= 0;
    if (*ret < 0)
        *ret = old;
    else if (old >= 0)
        (void)close(old);
    return 0;
}

/* The manager does not report that it has no room. */
static int keep_copy(struct sw_service *service, struct sw_err *err) {
    if (sw_fdstore_count(service->fdstore) < sw_fdstore_limit() &&
        sw_fdstore_keep(CATALOGUE_NAME, sw_catalogue_fd(service->catalogue)))
        return 0;
    return sw_err_set(err, -SW_ELIMIT, SW_SCOPE_DAEMON,
                      "the service manager does not keep the catalogue's copy: raise FileDescriptorStoreMax= (now %u)",
                      sw_fdstore_limit());
}

static void forget_catalogue(struct sw_service *service) {
    sw_fdstore_forget(CATALOGUE_NAME);
    sw_tiers_forget_old_catalogue(service);
}

static int open_catalogue(struct sw_service *service, int fd, struct sw_err *err) {
    const int rc = sw_catalogue_open(&service->catalogue, fd, (unsigned)service->config->max_regions, err);
    if (rc == -SW_EVERSION)
        return refuse_newer(SW_CATALOGUE_VERSION + 1, err);
    return !rc && sw_catalogue_is_copy(service->catalogue) ? keep_copy(service, err) : rc;
}

int sw_tiers_open_catalogue(struct sw_service *service, struct sw_err *err) {
    int fd;
    if (!sw_notify_is_heard())
        return 0;
    int rc = take_catalogue(service, &fd, err);
    if (!rc && fd >= 0) {
        rc = open_catalogue(service, fd, err);
        if (rc != -SW_EFRAME)
            return rc;
        sw_log(SW_LOG_ERROR, "catalogue.refused", "name=%s text=\"%s\" then=\"all stored regions are lost\"",
               sw_err_name(rc), err->msg);
        forget_catalogue(service);
        rc = 0;
    }
    if (!rc)
        rc = sw_catalogue_open(&service->catalogue, -1, (unsigned)service->config->max_regions, err);
    if (!rc && !sw_fdstore_keep(CATALOGUE_NAME, sw_catalogue_fd(service->catalogue)))
        sw_tiers_close_catalogue(service);
    return rc;
}

void sw_tiers_forget_old_catalogue(struct sw_service *service) {
    if (service->has_old_catalogue)
        sw_fdstore_forget(OLD_CATALOGUE_NAME);
    service->has_old_catalogue = false;
}

void sw_tiers_close_catalogue(struct sw_service *service) {
    sw_catalogue_close(service->catalogue);
    service->catalogue = NULL;
}
