/* A stand-in for libnvidia-ml.so.1: its answers are in the file that NVML_SCRIPT names, read anew at each call.
 *
 *   init STATUS MILLISECONDS           what nvmlInit_v2 returns, and how long it takes
 *   gpu STATUS TOTAL USED BUSY MIGS    the next GPU: of nvmlDeviceGetMemoryInfo, and how many MIG instances it has
 *   process DEVICE KIND PID BYTES      C (compute) or G (graphics); -1 bytes: not available; a MIG instance is GPU.NUMBER
 *   list STATUS MILLISECONDS [KIND]    what the lists of processes return, and how long that takes; C or G: only those
 *   entry BYTES                        how long an entry of _v3 is: 24, or of some drivers 32 or 16
 *   hungry                             each list asks for more room than there can be
 *   count STATUS [NUMBER]              what nvmlDeviceGetCount_v2 returns, and so many GPUs in place of those above
 *   handle STATUS GPU                  what nvmlDeviceGetHandleByIndex_v2 returns for a GPU
 *   print TEXT                         each reading prints this, without the end of a line
 *   old VERSIONS                       2: there is no _v3; 1: there is no _v2 either
 *   fork                               the first call forks a child that stays for 200 s
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
typedef struct { process_t process; unsigned long long protected; } long_process_t;
typedef struct { unsigned int pid; unsigned long long used; } old_process_t;

static struct { int status, busy, migs; unsigned long long total, used; } gpus[16];
static struct { char device[16], kind; unsigned int pid; long long used; } processes[256];
static int count, count_status, listed, init, init_ms, list, list_ms, hungry, version, entry;
static unsigned int many;
static int handle_status, handle_of, forked;
static char list_kind;

static void script(void) {
    char line[256];
    FILE *file = fopen(getenv("NVML_SCRIPT"), "r");
    count = count_status = listed = init = init_ms = list = list_ms = list_kind = hungry = 0;
    version = 3, entry = 24, many = 0, handle_status = 0;
    while (file && fgets(line, sizeof line, file)) {
        sscanf(line, "init %d %d", &init, &init_ms);
        sscanf(line, "list %d %d %c", &list, &list_ms, &list_kind);
        sscanf(line, "entry %d", &entry);
        sscanf(line, "count %d %u", &count_status, &many);
        sscanf(line, "handle %d %d", &handle_status, &handle_of);
        if (!strncmp(line, "print ", 6)) printf("%.*s", (int)strcspn(line + 6, "\n"), line + 6), fflush(stdout);
        if (!strncmp(line, "hungry", 6)) hungry = 1;
        sscanf(line, "old %d", &version);
        if (!strncmp(line, "fork", 4) && !forked++ && !fork()) sleep(200), _exit(0);
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

const char *nvmlErrorString(int status) { return status == 9 ? "Driver Not Loaded" : status == 15 ? "GPU is lost" : status == 3 ? "Not Supported" : status == 7 ? "Insufficient Size" : "Error"; }
int nvmlInit_v2(void) { script(); usleep(init_ms * 1000); return init; }
int nvmlDeviceGetCount_v2(unsigned int *number) { script(); *number = many ? many : count; return count_status; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **handle) {
    *handle = (void *)(long)(index * 100 + 1);
    return (int)index == handle_of && handle_status ? handle_status : index < (unsigned int)count ? 0 : 2;
}
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

static int list_of(void *handle, char kind, unsigned int *number, void *infos, int bytes) {
    char device[16];
    unsigned int found = 0, room = *number;
    script();
    usleep(list_ms * 1000);
    if (hungry) {
        *number = 4000000000u;
        return 7;
    }
    if (list && (!list_kind || list_kind == kind)) return list;
    if (mig_of(handle) >= 0) snprintf(device, sizeof device, "%d.%d", gpu_of(handle), mig_of(handle));
    else snprintf(device, sizeof device, "%d", gpu_of(handle));
    for (int at = 0; at < listed; at++) {
        if (strcmp(processes[at].device, device) || processes[at].kind != kind) continue;
        if (found < room && bytes == 16) {
            ((old_process_t *)infos)[found] = (old_process_t){processes[at].pid, processes[at].used};
        } else if (found < room && bytes == 32) {
            process_t process = {processes[at].pid, processes[at].used, 0xffffffff, 0xffffffff};
            ((long_process_t *)infos)[found] = (long_process_t){process, 0};
        } else if (found < room) {
            ((process_t *)infos)[found] = (process_t){processes[at].pid, processes[at].used, 0xffffffff, 0xffffffff};
        }
        found++;
    }
    *number = found;
    return found > room ? 7 : 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned int *number, void *infos) {
    script();
    return version < 3 ? 13 : list_of(handle, 'C', number, infos, entry);
}
int nvmlDeviceGetComputeRunningProcesses_v2(void *handle, unsigned int *number, void *infos) {
    script();
    return version < 2 ? 13 : list_of(handle, 'C', number, infos, 24);
}
int nvmlDeviceGetComputeRunningProcesses(void *handle, unsigned int *number, void *infos) {
    return list_of(handle, 'C', number, infos, 16);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, unsigned int *number, void *infos) {
    script();
    return version < 3 ? 13 : list_of(handle, 'G', number, infos, entry);
}
