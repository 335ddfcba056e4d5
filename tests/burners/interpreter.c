/* Lays out in its own memory what the helper's reader expects of a Python 3.13, and takes memory for some seconds.
 *
 * The first argument says what is odd about it: "tables" (60 line tables of 1 MiB), "short_tables" (60 of 120 KiB),
 * "frames" (6,000 frames on one dictionary), "dictionaries" (6,000 frames, each with a dictionary of 1 MiB), "codes"
 * (6,000 frames of as many functions with long names), "frame_circle", "thread_circle", "interpreter_circle".
 * The second one is for how many milliseconds.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { FRAMES = 6000, TABLES = 60, LONGEST = 1 << 20, NAME = 4000 };

typedef uint64_t word;

/* A process's memory has these by name: the executable is called like a Python.
 * As of each Python from 3.13 on, it begins with a cookie, the version, and the offsets of fields, structs in order. */
enum { INTERPRETERS = 960, NEXT = 7264, THREADS = 7344 };
word _PyRuntime[128] = {
    0x7970677562656478, 0x030d00f0, 0,                                       /* "xdebugpy" */
    1024, 0, INTERPRETERS,                                                   /* runtime */
    8192, 7272, NEXT, THREADS, 0, 0, 0, 0, 0, 0, 0, 0, 0,                    /* interpreter */
    256, 0, 8, 16, 72, 152, 160, 232, 32,                                    /* thread */
    80, 8, 0, 56, 72, 70,                                                    /* frame */
    208, 112, 120, 128, 136, 68, 52, 96, 104, 200,                           /* code */
    16, 8,                                                                   /* object */
    416, 24, 88, 168,                                                        /* type */
    32, 24, 16, 40, 24, 16,                                                  /* tuple, list */
    48, 32, 40,                                                              /* dict */
    24, 16, 32, 16, 24,                                                      /* float, int */
    40, 16, 32,                                                              /* bytes */
    64, 32, 16, 40,                                                          /* string */
};
const unsigned int Py_Version = 0x030d00f0;

static word interpreter[1024], threads[1000][32], frames[FRAMES][16], codes[FRAMES][32], dictionary[8];

static word at(const void *of) { return (word)(uintptr_t)of; }

static char *new(size_t size) {
    char *room = calloc(1, size);
    if (room == NULL)
        exit(1);
    return room;
}

static char *text(size_t length, int number) {
    char *made = new(40 + length + 1);
    *(word *)(made + 16) = length;
    made[32] = 1 << 2 | 1 << 5 | 1 << 6;
    memset(made + 40, 'f', length);
    for (size_t place = length; number > 0; number /= 10)
        made[40 + --place] = (char)('0' + number % 10);
    return made;
}

static char *table(size_t size, int number) {
    char *made = new(32 + size);
    *(word *)(made + 16) = size;
    memset(made + 32, 0xd8, size); /* entries of one unit each, one line further */
    made[32] = (char)(0x80 | (number & 7));
    return made;
}

static word keys(void) {
    char *made = new(32 + LONGEST);
    made[9] = 16;
    made[10] = 1;
    *(word *)(made + 24) = LONGEST / 16 - 8192;
    return at(made);
}

static void code(word *made, const char *name, const char *lines) {
    made[2] = LONGEST;              /* units of bytecode */
    *(int *)((char *)made + 68) = 1; /* the first line */
    static const word no_variables[3];
    made[12] = at(no_variables);
    made[14] = at(name);            /* the file */
    made[16] = at(name);
    made[17] = at(lines);
}

int main(int count, char **words) {
    const char *kind = count > 2 ? words[1] : "";
    int is_of_tables = strstr(kind, "tables") != NULL, is_of_codes = !strcmp(kind, "codes");
    int depth = is_of_tables ? TABLES : FRAMES, functions = is_of_tables || is_of_codes ? depth : 1;
    size_t size = !strcmp(kind, "tables") ? LONGEST : is_of_tables ? 120 << 10 : 100;
    const char *shared = table(size, 0);
    for (int number = 0; number < functions; number++)
        code(codes[number], text(is_of_codes ? NAME : 8, number + 1), is_of_tables ? table(size, number) : shared);
    dictionary[4] = keys();
    for (int number = 0; number < depth; number++) {
        word *frame = frames[number];
        word *names = dictionary;
        if (!strcmp(kind, "dictionaries")) {
            names = (word *)new(64);
            names[4] = dictionary[4];
        }
        frame[0] = at(codes[number % functions]);
        frame[1] = number + 1 < depth ? at(frames[number + 1]) : 0;
        frame[5] = at(names);
        frame[7] = frame[0] + 200 + 2 * (number % 50);
    }
    if (!strcmp(kind, "frame_circle"))
        frames[depth - 1][1] = at(frames[depth / 2]);
    _PyRuntime[INTERPRETERS / 8] = at(interpreter);
    interpreter[NEXT / 8] = strcmp(kind, "interpreter_circle") ? 0 : at(interpreter);
    interpreter[THREADS / 8] = at(threads[0]);
    int is_circle = !strcmp(kind, "thread_circle");
    threads[0][1] = is_circle ? at(threads[0]) : 0;
    threads[0][160 / 8] = (word)getpid();
    threads[0][72 / 8] = at(frames[0]);
    struct timespec pause = {0, 2000000};
    for (int rest_ms = count > 2 ? atoi(words[2]) : 0; rest_ms > 0; rest_ms -= 2) {
        memset(new(100 << 10), 1, 100 << 10);
        frames[0][7] += rest_ms % 4 ? 2 : -2; /* the innermost frame goes on */
        nanosleep(&pause, NULL);
    }
    return 0;
}
