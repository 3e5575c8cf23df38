#include "base/journal.h"

#include "base/logfmt.h"
#include <ctype.h>
#include <endian.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* A line of at most 1024 bytes is sent twice, as message and as fields. The fields' names and lengths come on top. */
enum { DATAGRAM_BYTES = 8192 };

static int journal = -1;

struct datagram {
    size_t bytes;
    char data[DATAGRAM_BYTES];
};

/* Appends a field: NAME=value, or NAME, length and value if the value has more than one line. A field that does not fit
 * is left out. */
static void add(struct datagram *datagram, const char *name, const char *value) {
    const size_t name_bytes = strlen(name), bytes = strlen(value);
    const bool is_binary = strchr(value, '\n') != NULL;
    const uint64_t length = htole64(bytes);
    char *at = datagram->data + datagram->bytes;
    if (datagram->bytes + name_bytes + 1 + sizeof length + bytes + 1 > sizeof datagram->data)
        return;
    at = mempcpy(at, name, name_bytes);
    *at++ = is_binary ? '\n' : '=';
    if (is_binary)
        at = mempcpy(at, &length, sizeof length);
    at = mempcpy(at, value, bytes);
    *at++ = '\n';
    datagram->bytes = (size_t)(at - datagram->data);
}

/* The journal takes only upper case letters, digits and underscores in field names. */
static void add_field(struct datagram *datagram, struct sw_logfmt_field *field) {
    for (char *at = field->name; *at; at++)
        *at = isalnum((unsigned char)*at) ? (char)toupper((unsigned char)*at) : '_';
    if (isalpha((unsigned char)field->name[0]))
        add(datagram, field->name, field->value);
}

static bool is_stderr(const char *stream) {
    struct stat found;
    unsigned long long device, inode;
    return stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 && fstat(STDERR_FILENO, &found) == 0 &&
           found.st_dev == device && found.st_ino == inode;
}

bool sw_journal_open(const char *socket_path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!is_stderr(getenv("JOURNAL_STREAM")) || strlen(socket_path) >= sizeof address.sun_path)
        return false;
    memcpy(address.sun_path, socket_path, strlen(socket_path) + 1);
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) == 0) {
        journal = fd;
        return true;
    }
    if (fd >= 0)
        (void)close(fd);
    return false;
}

enum sw_journal_answer sw_journal_send(int priority, const char *line) {
    struct datagram datagram = {.bytes = 0};
    struct sw_logfmt_field field;
    char text[2];
    if (journal < 0)
        return SW_JOURNAL_ABSENT;
    const char *event = strstr(line, "event="), *message = event ? event + strlen("event=") : line;
    (void)snprintf(text, sizeof text, "%d", priority & 7);
    add(&datagram, "MESSAGE", message);
    add(&datagram, "PRIORITY", text);
    add(&datagram, "SYSLOG_IDENTIFIER", "spillwayd");
    for (const char *at = line; sw_logfmt_next(&at, &field);)
        if (strcmp(field.name, "level") != 0)
            add_field(&datagram, &field);
    if (send(journal, datagram.data, datagram.bytes, MSG_NOSIGNAL) == (ssize_t)datagram.bytes)
        return SW_JOURNAL_TAKEN;
    /* Do not print the line when the journal is full: stderr leads to the same journal, and a write to it would block.
     */
    return errno == EAGAIN || errno == ENOBUFS ? SW_JOURNAL_FULL : SW_JOURNAL_ABSENT;
}
