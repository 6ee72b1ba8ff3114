/* Shows a process the wall-clock time that a file holds, in place of the system's.
 *
 * The file is named by SLIDEGATE_TESTBED_CLOCK and holds two 64-bit integers of the machine's byte
 * order: microseconds since the epoch or, if those are 0, how many to add to the real time.
 * Monotonic clocks pass through, so that timers and the event loop go on. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *shared_us;

static void fail(const char *what) {
    perror(what);
    abort();
}

__attribute__((constructor)) static void open_clock(void) {
    const char *path = getenv("SLIDEGATE_TESTBED_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) fail("SLIDEGATE_TESTBED_CLOCK");
    void *page = mmap(NULL, 2 * sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    if (page == MAP_FAILED) fail("mmap");
    close(file);
    shared_us = page;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    /* Other libraries' constructors may ask for the time before ours has run. */
    int64_t us = shared_us ? shared_us[0] : 0;
    int is_wall_clock = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    if (us == 0 || !is_wall_clock) {
        int result = (int)syscall(SYS_clock_gettime, clock, now);
        if (result != 0 || !is_wall_clock || !shared_us) return result;
        us = now->tv_sec * 1000000LL + now->tv_nsec / 1000 + shared_us[1];
    }
    now->tv_sec = us / 1000000;
    now->tv_nsec = us % 1000000 * 1000;
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *seconds) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (seconds) *seconds = precise.tv_sec;
    return precise.tv_sec;
}

/* Valkey looks at the wall clock once a millisecond and adds what the processor's own clock says
 * since then, if this file tells that there is a steady one. Without the file it looks each time. */
FILE *fopen64(const char *path, const char *mode) {
    if (strcmp(path, "/proc/cpuinfo") == 0) {
        errno = ENOENT;
        return NULL;
    }
    FILE *(*next)(const char *, const char *);
    *(void **)&next = dlsym(RTLD_NEXT, "fopen64");
    return next(path, mode);
}
