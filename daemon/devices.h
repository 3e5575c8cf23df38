/* devices.h - opens the configured devices. thread: loop, before the engine is opened and after it is closed. */
#ifndef SW_DAEMON_DEVICES_H
#define SW_DAEMON_DEVICES_H

#include "daemon/service.h"

/* Fills service->devices, GPUs first, the host last. errors: -SW_EDEVICE (device=cuda and there is none), and those of
 * opening a device; none stays open then. */
int sw_devices_open(struct sw_service *service, struct sw_err *err);
/* Closes the devices; none open is a no-op. */
void sw_devices_close(struct sw_service *service);
/* Gets "NVIDIA H200,NVIDIA H200,host" for the log. Returns ret. */
const char *sw_devices_names(const struct sw_service *service, char *ret, size_t ret_bytes);

#endif
