/* A driver's library without a driver: it notes what it is asked, a word a line, in the file that FAKE_CUDA_LOG names. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void note(const char *word) {
    const char *path = getenv("FAKE_CUDA_LOG");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (file) {
        fprintf(file, "%s\n", word);
        fclose(file);
    }
}

__attribute__((constructor)) static void loaded(void) { note("loaded"); }

static int refuse(void) {
    note("other");
    return 100; /* CUDA_ERROR_NO_DEVICE */
}

int cuInit(unsigned flags) {
    note("cuInit");
    return 100;
}

int cuDriverGetVersion(int *version) {
    note("cuDriverGetVersion");
    *version = 13000;
    return 0;
}

int cuGetProcAddress_v2(const char *symbol, void **function, int version, unsigned long long flags, void *status) {
    *function = !strcmp(symbol, "cuInit")               ? (void *)cuInit
                : !strcmp(symbol, "cuDriverGetVersion") ? (void *)cuDriverGetVersion
                : !strcmp(symbol, "cuGetProcAddress")   ? (void *)cuGetProcAddress_v2
                                                        : (void *)refuse;
    return 0;
}

int cuGetProcAddress(const char *symbol, void **function, int version, unsigned long long flags) {
    return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}
