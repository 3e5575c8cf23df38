/* catalogue.c - the catalogue of the tiers' content, kept by the service manager. */
#include "daemon/tiers/tiers.h"

#include "base/log.h"
#include "daemon/fdstore.h"
#include "daemon/notify.h"
#include "daemon/service.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* The manager keeps the catalogue under this name and its version's number. Version 1 has no number. */
#define FIRST_NAME "catalogue"
#define CATALOGUE_PREFIX "catalogue-"
#define CATALOGUE_NAME CATALOGUE_PREFIX "3"
_Static_assert(SW_CATALOGUE_VERSION == 3, "its name says so");

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

/* ret[version]: the catalogue of that version; -1: there is none. Returns the highest version of all, also of those
 * that are not known. */
static unsigned long take_all(struct sw_service *service, int ret[SW_CATALOGUE_VERSION + 1]) {
    unsigned long newest = 0;
    const char *version;
    for (unsigned v = 0; v <= SW_CATALOGUE_VERSION; v++)
        ret[v] = -1;
    for (int fd; (fd = sw_fdstore_take_any(service->fdstore, CATALOGUE_PREFIX, &version)) >= 0;) {
        const unsigned long v = strtoul(version, NULL, 10);
        newest = v > newest ? v : newest;
        if (v > 1 && v <= SW_CATALOGUE_VERSION && ret[v] < 0)
            ret[v] = fd;
        else
            (void)close(fd);
    }
    ret[1] = sw_fdstore_take(service->fdstore, FIRST_NAME);
    return newest;
}

/* *ret: the catalogue that counts; -1: there is none. Several are there if a start was killed or has failed after an
 * old one had been copied: the copy, which is of a later version, is then the newer one. */
static int take_catalogue(struct sw_service *service, int *ret, struct sw_err *err) {
    int found[SW_CATALOGUE_VERSION + 1];
    const unsigned long newest = take_all(service, found);
    *ret = -1;
    for (unsigned v = SW_CATALOGUE_VERSION; v > 0; v--) {
        service->old_catalogues |= found[v] >= 0 && v < SW_CATALOGUE_VERSION ? 1u << v : 0;
        if (newest <= SW_CATALOGUE_VERSION && *ret < 0)
            *ret = found[v];
        else if (found[v] >= 0)
            (void)close(found[v]);
    }
    return newest > SW_CATALOGUE_VERSION ? refuse_newer(newest, err) : 0;
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
    sw_tiers_forget_old_catalogues(service);
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

void sw_tiers_forget_old_catalogues(struct sw_service *service) {
    char name[sizeof CATALOGUE_PREFIX + 12] = FIRST_NAME;
    for (unsigned v = 1; v < SW_CATALOGUE_VERSION; v++) {
        if (v > 1)
            (void)snprintf(name, sizeof name, CATALOGUE_PREFIX "%u", v);
        if (service->old_catalogues >> v & 1)
            sw_fdstore_forget(name);
    }
    service->old_catalogues = 0;
}

void sw_tiers_close_catalogue(struct sw_service *service) {
    sw_catalogue_close(service->catalogue);
    service->catalogue = NULL;
}
