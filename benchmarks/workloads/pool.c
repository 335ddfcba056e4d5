/* touch(): threads of its own touch memory at a rate, while the caller waits. */
#include <pthread.h>
#include <stddef.h>
#include <time.h>

enum { THREADS = 3, PAGE = 4096 };

struct part { char *begin; size_t size; double rate; };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void *run(void *argument) {
    struct part *part = argument;
    double begun = now();
    for (size_t done = 0; done < part->size; done += PAGE) {
        part->begin[done] = 1;
        double ahead = begun + done / part->rate - now();
        if (ahead > 0.002) {
            struct timespec t = {0, (long)(ahead * 1e9)};
            nanosleep(&t, NULL);
        }
    }
    return NULL;
}

void touch(char *begin, size_t size, double rate) {
    pthread_t threads[THREADS];
    struct part parts[THREADS];
    size_t each = size / THREADS / PAGE * PAGE;
    for (int i = 0; i < THREADS; i++) {
        parts[i] = (struct part){begin + i * each, i + 1 < THREADS ? each : size - i * each, rate / THREADS};
        pthread_create(&threads[i], NULL, run, &parts[i]);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}
