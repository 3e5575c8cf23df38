#include "daemon/ctl/screen.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static const int ending[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
static struct termios before; /* valid while has_keys */
static bool has_keys;

static void on_end(int number) {
    (void)tcsetattr(STDIN_FILENO, TCSANOW, &before);
    (void)raise(number); /* with its default action, which SA_RESETHAND has restored */
}

/* It only has to interrupt the wait. */
static void on_resize(int number) {
    (void)number;
}

void sw_screen_begin(void) {
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) || tcgetattr(STDIN_FILENO, &before) < 0)
        return;
    const struct sigaction end = {.sa_handler = on_end, .sa_flags = (int)SA_RESETHAND};
    const struct sigaction resize = {.sa_handler = on_resize};
    for (size_t i = 0; i < sizeof ending / sizeof ending[0]; i++)
        (void)sigaction(ending[i], &end, NULL);
    (void)sigaction(SIGWINCH, &resize, NULL);
    struct termios keys = before;
    keys.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    keys.c_cc[VMIN] = 1;
    keys.c_cc[VTIME] = 0;
    has_keys = tcsetattr(STDIN_FILENO, TCSANOW, &keys) == 0;
}

void sw_screen_end(void) {
    if (has_keys)
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &before);
    has_keys = false;
}

/* Returns the end of a line that may have this many characters. */
static const char *cut(const char *line, const char *end, unsigned columns) {
    unsigned n = 0;
    for (; line < end; line++) {
        n += ((unsigned char)*line & 0xc0) != 0x80;
        if (n > columns)
            break;
    }
    return line;
}

char *sw_screen_fit(const char *page, unsigned rows, unsigned columns) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    (void)fputs("\033[H", out);
    for (unsigned row = 0; *page && row < rows; row++) {
        const char *end = strchrnul(page, '\n');
        (void)fprintf(out, "%s%.*s\033[K", row ? "\r\n" : "", (int)(cut(page, end, columns) - page), page);
        page = end + (*end == '\n');
    }
    (void)fputs("\033[J", out);
    return fclose(out) == 0 ? text : (free(text), NULL);
}

void sw_screen_show(const char *page) {
    struct winsize window = {.ws_row = 0};
    const bool is_terminal = isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0;
    char *text = NULL;
    if (is_terminal)
        text = sw_screen_fit(page, window.ws_row ? window.ws_row : 24, window.ws_col ? window.ws_col : 80);
    (void)fputs(text ? text : page, stdout);
    free(text);
}

bool sw_screen_wait(double seconds) {
    struct pollfd keys = {.fd = has_keys ? STDIN_FILENO : -1, .events = POLLIN};
    char key = 0;
    if (poll(&keys, 1, (int)(seconds * 1e3)) <= 0)
        return false;
    const ssize_t n = read(STDIN_FILENO, &key, 1);
    has_keys = n == 1; /* false: the terminal is gone */
    return key == 'q' || key == 'Q';
}
