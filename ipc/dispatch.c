#include "ipc/dispatch.h"

static const struct sw_command *find(const struct sw_command *table, size_t n_commands,
                                     const struct sw_msg_header *header) {
    for (size_t i = 0; i < n_commands; i++)
        if (table[i].type == header->type && (!table[i].version || table[i].version == header->version))
            return &table[i];
    return NULL;
}

static int check(const struct sw_command *command, bool greeted, const struct sw_received *request,
                 struct sw_err *err) {
    const unsigned type = request->msg->header.type;
    if (!command)
        return sw_err_set(err, -SW_EPROTO, SW_SCOPE_SESSION, "%s is not a request of version %u", sw_msg_name(type),
                          (unsigned)request->msg->header.version);
    if (!greeted && type != SW_MSG_HELLO)
        return sw_err_set(err, -SW_EPROTO, SW_SCOPE_SESSION, "%s came before hello", sw_msg_name(type));
    if (greeted && type == SW_MSG_HELLO)
        return sw_err_set(err, -SW_EPROTO, SW_SCOPE_SESSION, "hello came twice");
    if ((request->n_fds || request->fds_lost) && !command->takes_fds)
        return sw_err_set(err, -SW_EFDS, SW_SCOPE_REQUEST, "%s takes no descriptors, but %u came with it",
                          sw_msg_name(type), request->n_fds);
    return 0;
}

int sw_dispatch(const struct sw_command *table, size_t n_commands, void *session, bool greeted,
                const struct sw_received *request, struct sw_msg *ret_reply, struct sw_err *err) {
    const struct sw_command *command = find(table, n_commands, &request->msg->header);
    int rc = check(command, greeted, request, err);
    if (rc == 0)
        rc = command->run(session, request, ret_reply, err);
    ret_reply->header.seq = request->msg->header.seq;
    return rc;
}
