/* A stand-in for libnvidia-ml.so.1: its answers are in the file that NVML_SCRIPT names, read anew at each call.
 *
 *   init STATUS MILLISECONDS           what nvmlInit_v2 returns, and how long it takes
 *   gpu STATUS TOTAL USED BUSY MIGS    the next GPU: of nvmlDeviceGetMemoryInfo, and how many MIG instances it has
 *   process DEVICE KIND PID BYTES      C (compute) or G (graphics); -1 bytes: not available; a MIG instance is GPU.NUMBER
 *   list STATUS MILLISECONDS           what the lists of processes return, and how long that takes
 *   growing                            each list is too short at first, and longer than it said the next time
 *   old VERSIONS                       2: there is no _v3; 1: there is no _v2 either
 *   exit                               the process ends at the next reading, as by a crash
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned int gpu, memory; } rates_t;
typedef struct { unsigned int pid; unsigned long long used; unsigned int gpu_instance, compute_instance; } process_t;
typedef struct { unsigned int pid; unsigned long long used; } old_process_t;

static struct { int status, busy, migs; unsigned long long total, used; } gpus[16];
static struct { char device[16], kind; unsigned int pid; long long used; } processes[256];
static int count, listed, init, init_ms, list, list_ms, growing, version, calls;

static void script(void) {
    char line[256];
    FILE *file = fopen(getenv("NVML_SCRIPT"), "r");
    count = listed = init = init_ms = list = list_ms = growing = 0;
    version = 3;
    while (file && fgets(line, sizeof line, file)) {
        sscanf(line, "init %d %d", &init, &init_ms);
        sscanf(line, "list %d %d", &list, &list_ms);
        sscanf(line, "old %d", &version);
        if (!strncmp(line, "growing", 7)) growing = 1;
        if (!strncmp(line, "exit", 4)) raise(SIGKILL);
        if (sscanf(line, "gpu %d %llu %llu %d %d", &gpus[count].status, &gpus[count].total, &gpus[count].used,
                   &gpus[count].busy, &gpus[count].migs) == 5) count++;
        if (sscanf(line, "process %15s %c %u %lld", processes[listed].device, &processes[listed].kind,
                   &processes[listed].pid, &processes[listed].used) == 4) listed++;
    }
    if (file) fclose(file);
}

static int gpu_of(void *handle) { return ((int)(long)handle - 1) / 100; }
static int mig_of(void *handle) { return ((int)(long)handle - 1) % 100 - 1; }

const char *nvmlErrorString(int status) { return status == 9 ? "Driver Not Loaded" : status == 15 ? "GPU is lost" : "Error"; }
int nvmlInit_v2(void) { script(); usleep(init_ms * 1000); return init; }
int nvmlDeviceGetCount_v2(unsigned int *number) { script(); *number = count; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **handle) { *handle = (void *)(long)(index * 100 + 1); return 0; }
int nvmlDeviceGetMigMode(void *handle, unsigned int *now, unsigned int *pending) {
    *now = *pending = gpus[gpu_of(handle)].migs > 0;
    return 0;
}
int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned int *most) { *most = 7; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned int index, void **instance) {
    if ((int)index >= gpus[gpu_of(handle)].migs) return 6;
    *instance = (void *)((long)handle + 1 + index);
    return 0;
}
int nvmlDeviceGetMemoryInfo(void *handle, memory_t *memory) {
    script();
    int gpu = gpu_of(handle);
    if (gpus[gpu].status) return gpus[gpu].status;
    memory->total = gpus[gpu].total, memory->used = gpus[gpu].used, memory->free = memory->total - memory->used;
    return 0;
}
int nvmlDeviceGetUtilizationRates(void *handle, rates_t *rates) {
    rates->gpu = gpus[gpu_of(handle)].busy;
    return mig_of(handle) >= 0 ? 3 : gpus[gpu_of(handle)].status;
}
int nvmlDeviceGetName(void *handle, char *text, unsigned int length) { snprintf(text, length, "Stand-In 80GB"); return 0; }
int nvmlDeviceGetUUID(void *handle, char *text, unsigned int length) {
    snprintf(text, length, mig_of(handle) >= 0 ? "MIG-%d-%d" : "GPU-%d", gpu_of(handle), mig_of(handle));
    return 0;
}

static int list_of(void *handle, char kind, unsigned int *number, void *infos, int is_old) {
    char device[16];
    unsigned int found = 0, room = *number;
    script();
    usleep(list_ms * 1000);
    if (list) return list;
    if (mig_of(handle) >= 0) snprintf(device, sizeof device, "%d.%d", gpu_of(handle), mig_of(handle));
    else snprintf(device, sizeof device, "%d", gpu_of(handle));
    for (int at = 0; at < listed; at++) {
        if (strcmp(processes[at].device, device) || processes[at].kind != kind) continue;
        if (found < room && is_old) {
            ((old_process_t *)infos)[found] = (old_process_t){processes[at].pid, processes[at].used};
        } else if (found < room) {
            ((process_t *)infos)[found] = (process_t){processes[at].pid, processes[at].used, 0xffffffff, 0xffffffff};
        }
        found++;
    }
    *number = found;
    if (growing && calls++ % 3 != 2) {
        *number = room + calls % 3;
        return 7;
    }
    return found > room ? 7 : 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned int *number, void *infos) {
    script();
    return version < 3 ? 13 : list_of(handle, 'C', number, infos, 0);
}
int nvmlDeviceGetComputeRunningProcesses_v2(void *handle, unsigned int *number, void *infos) {
    script();
    return version < 2 ? 13 : list_of(handle, 'C', number, infos, 0);
}
int nvmlDeviceGetComputeRunningProcesses(void *handle, unsigned int *number, void *infos) {
    return list_of(handle, 'C', number, infos, 1);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, unsigned int *number, void *infos) {
    script();
    return version < 3 ? 13 : list_of(handle, 'G', number, infos, 0);
}
