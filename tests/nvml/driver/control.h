/* The way into every function of the stub: it counts the call, waits as long as the test asked for,
 * and says which error, if any, the test wants. */
#ifndef STUB_CONTROL_H
#define STUB_CONTROL_H

#include <stdbool.h>

#include "layout.h"
#include "nvml_api.h"

/* One call of the driver: an error to return at once, or the GPU and the moment it asks about. */
struct call {
    nvmlReturn_t status;
    unsigned gpu;
    unsigned instance; /* of MIG, from 1; 0: the whole GPU */
    int64_t elapsed_ns;
};

struct call begin_system(enum function function);
struct call begin_device(enum function function, nvmlDevice_t device);
nvmlReturn_t status_now(enum function function, unsigned gpu); /* the error of a call that is under way */

/* Most functions start the same way; `call` is then in scope. */
#define BEGIN_SYSTEM(function)                                                                     \
    struct call call = begin_system(FN_##function);                                                \
    if (call.status != NVML_SUCCESS)                                                               \
    return call.status
#define BEGIN(function, device)                                                                    \
    struct call call = begin_device(FN_##function, device);                                        \
    if (call.status != NVML_SUCCESS)                                                               \
    return call.status
#define NEED(condition, otherwise)                                                                 \
    if (!(condition))                                                                              \
    return (otherwise)

#define SERIAL_FORMAT "16502230%05u"
#define BUS_FORMAT "00000000:%02X:00.0"
#define PCI_BUS(gpu) (0x10 + 4 * (gpu))

nvmlReturn_t copy_text(const char *text, char *buffer, unsigned length);

struct stub_file *control(void);
nvmlReturn_t control_status(void); /* why the control file cannot be used, or NVML_SUCCESS */
void open_driver(void);            /* nvmlInit and nvmlShutdown count, as in NVML */
nvmlReturn_t close_driver(void);

nvmlDevice_t device_handle(unsigned gpu);
nvmlDevice_t instance_handle(unsigned gpu, unsigned instance);
bool mig_is_on(unsigned gpu);
unsigned instances_of(unsigned gpu); /* of MIG; none where it is off */
unsigned slices_of(const struct call *call); /* of an instance: each is a GPC and 10 GiB */
const struct stub_gpu *gpu_of(const struct call *call);

bool supported(const struct call *call, enum metric metric);
uint64_t reading(const struct call *call, enum metric metric);
uint64_t reading_at(const struct call *call, enum metric metric, int64_t elapsed_ns);
int64_t unix_us(int64_t elapsed_ns);
int64_t elapsed_of_unix_us(int64_t unix_us);

void sleep_us(uint64_t microseconds);

#endif
