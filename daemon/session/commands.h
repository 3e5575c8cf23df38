/* commands.h - the table of requests on the data socket. Each handler calls the engine once. thread: loop. */
#ifndef SW_DAEMON_COMMANDS_H
#define SW_DAEMON_COMMANDS_H

#include "ipc/dispatch.h"

extern const struct sw_command sw_commands[];
extern const size_t sw_commands_count;

#endif
