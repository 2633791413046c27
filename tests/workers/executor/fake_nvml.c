/* A libnvidia-ml.so.1 without a driver, for pynvml, which loads it by name. $FAKE_NVML names a file of lines "key
 * value", read with each call: `init` (a return code), `driver`, `cuda`, `count`, and for GPU n `n.lost`, `n.uuid`,
 * `n.mig`, `n.instances`, `n.mode`, `n.minor`, `n.pci`, `n.errors`, `n.remap_pending`, `n.remap_failed`; `xid` and
 * `xid_gpu` are an event, told as often as `xid_number` rises if events of that GPU are registered. A GPU that is lost
 * forgets that they are. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, TIMEOUT = 10, GPU_IS_LOST = 15 };
typedef unsigned long Handle; /* 1 + GPU, and for an instance 1000 * (1 + instance) more */
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned gpu, memory; } Rates;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } Pci;
typedef struct { Handle device; unsigned long long type, data; unsigned gi, ci; } Event;

static int text(const char *key, char *value) {
    FILE *file = fopen(getenv("FAKE_NVML"), "r");
    char line[256], name[128];
    int found = 0;
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "%127s %127[^\n]", name, value) == 2 && !strcmp(name, key)) { found = 1; break; }
    if (file) fclose(file);
    return found;
}
static long number(const char *key, long otherwise) {
    char value[128];
    return text(key, value) ? atol(value) : otherwise;
}
static long gpu_number(Handle device, const char *what, long otherwise) {
    char key[64];
    snprintf(key, sizeof key, "%lu.%s", (device - 1) % 1000, what);
    return number(key, otherwise);
}
static int is_registered[64];
static int is_lost(Handle device) { return gpu_number(device, "lost", 0) ? GPU_IS_LOST : SUCCESS; }
static void uuid_of(Handle device, char *out, unsigned size) {
    char key[64], value[128];
    snprintf(key, sizeof key, "%lu.uuid", (device - 1) % 1000);
    if (!text(key, value)) snprintf(value, sizeof value, "%lu", (device - 1) % 1000);
    if (device > 1000) snprintf(out, size, "MIG-%s-%lu", value, device / 1000 - 1);
    else snprintf(out, size, "GPU-%s", value);
}

int nvmlInitWithFlags(unsigned flags) { return (int)number("init", SUCCESS); }
int nvmlInit_v2(void) { return (int)number("init", SUCCESS); }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { return code == 9 ? "Driver Not Loaded" : "an error of the fake"; }
int nvmlSystemGetDriverVersion(char *out, unsigned size) {
    char value[128];
    snprintf(out, size, "%s", text("driver", value) ? value : "580.65.06");
    return SUCCESS;
}
int nvmlSystemGetCudaDriverVersion_v2(int *out) { *out = (int)number("cuda", 13000); return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned *out) { *out = (unsigned)number("count", 1); return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Handle *out) {
    *out = index + 1;
    if (is_lost(*out)) is_registered[index] = 0;
    return is_lost(*out);
}
int nvmlDeviceGetHandleByUUID(const char *uuid, Handle *out) {
    long count = number("count", 1), instance;
    char own[128];
    for (long gpu = 1; gpu <= count; gpu++)
        for (instance = 0; instance <= gpu_number(gpu, "instances", 0); instance++) {
            *out = gpu + 1000 * instance;
            uuid_of(*out, own, sizeof own);
            if (!strcmp(own, uuid)) return is_lost(*out);
        }
    return NOT_FOUND;
}
int nvmlDeviceGetUUID(Handle device, char *out, unsigned size) { uuid_of(device, out, size); return is_lost(device); }
int nvmlDeviceGetName(Handle device, char *out, unsigned size) {
    snprintf(out, size, device > 1000 ? "NVIDIA H200 MIG 1g.18gb" : "NVIDIA H200");
    return is_lost(device);
}
int nvmlDeviceGetMinorNumber(Handle device, unsigned *out) {
    *out = (unsigned)gpu_number(device, "minor", (long)device - 1);
    return is_lost(device);
}
int nvmlDeviceGetPciInfo_v3(Handle device, Pci *out) {
    char key[64], value[128];
    snprintf(key, sizeof key, "%lu.pci", (device - 1) % 1000);
    if (!text(key, value)) return NOT_SUPPORTED;
    memset(out, 0, sizeof *out);
    snprintf(out->bus_id, sizeof out->bus_id, "%s", value);
    return is_lost(device);
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Handle device, Handle *out) {
    *out = (device - 1) % 1000 + 1;
    return device > 1000 ? is_lost(device) : NOT_SUPPORTED;
}
int nvmlDeviceGetMigMode(Handle device, unsigned *now, unsigned *pending) {
    *now = *pending = (unsigned)gpu_number(device, "mig", 0);
    return SUCCESS;
}
int nvmlDeviceGetMaxMigDeviceCount(Handle device, unsigned *out) { *out = 7; return SUCCESS; }
int nvmlDeviceGetMigDeviceHandleByIndex(Handle device, unsigned index, Handle *out) {
    if ((long)index >= gpu_number(device, "instances", 0)) return NOT_FOUND;
    *out = device + 1000 * (index + 1);
    return SUCCESS;
}
int nvmlDeviceGetRemappedRows(Handle device, unsigned *corrected, unsigned *bad, unsigned *pending, unsigned *failed) {
    *corrected = *bad = 0;
    *pending = (unsigned)gpu_number(device, "remap_pending", 0);
    *failed = (unsigned)gpu_number(device, "remap_failed", 0);
    return SUCCESS;
}
int nvmlDeviceGetTotalEccErrors(Handle device, int type, int counter, unsigned long long *out) {
    *out = (unsigned long long)gpu_number(device, "errors", 0);
    return SUCCESS;
}
int nvmlDeviceGetComputeMode(Handle device, int *out) { *out = (int)gpu_number(device, "mode", 0); return SUCCESS; }
int nvmlDeviceGetMemoryInfo(Handle device, Memory *out) {
    out->total = 100ULL << 30; out->used = 10ULL << 30; out->free = out->total - out->used;
    return is_lost(device);
}
int nvmlDeviceGetUtilizationRates(Handle device, Rates *out) {
    out->gpu = 40; out->memory = 20;
    return device > 1000 ? NOT_SUPPORTED : is_lost(device);
}
int nvmlDeviceGetPowerUsage(Handle device, unsigned *out) { *out = 250500; return is_lost(device); }
int nvmlDeviceGetTemperature(Handle device, int sensor, unsigned *out) { *out = 61; return is_lost(device); }
int nvmlEventSetCreate(void **out) { *out = malloc(1); return SUCCESS; }
int nvmlEventSetFree(void *set) { free(set); return SUCCESS; }
int nvmlDeviceRegisterEvents(Handle device, unsigned long long types, void *set) {
    is_registered[(device - 1) % 1000] = !is_lost(device);
    return is_lost(device);
}
int nvmlEventSetWait_v2(void *set, Event *out, unsigned milliseconds) {
    static long told = 0;
    if (number("xid_number", 0) <= told) return TIMEOUT;
    told++;
    if (!is_registered[number("xid_gpu", 0)]) return TIMEOUT;
    memset(out, 0, sizeof *out);
    out->device = 1 + (Handle)number("xid_gpu", 0);
    out->type = 8;
    out->data = (unsigned long long)number("xid", 0);
    return SUCCESS;
}
