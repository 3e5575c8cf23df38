/* text_pages.h - manual pages from texts: a C header with its comments, and what a program prints for --help. Not
 * installed; used by manual.c during the build. thread: any, one page at a time: they go to standard output. */
#ifndef SW_CTL_TEXT_PAGES_H
#define SW_CTL_TEXT_PAGES_H

#include <stdio.h>

/* Prints text so that roff shows it literally. */
void sw_roff_put(const char *text);
/* Prints the body of a page from a header: each comment becomes text, below the declaration that it is about. */
void sw_header_page(FILE *header);
/* Prints the body of a page from a help text: lines that begin with an option become a list, others stay as they are.
 */
void sw_help_page(FILE *help);

#endif
