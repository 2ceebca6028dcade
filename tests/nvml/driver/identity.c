/* What a GPU is and how it is set up: names, PCI address, modes. Nothing here moves. */
#include <stdio.h>
#include <string.h>

#include "getter.h"

enum { DISABLED = 0, ENABLED = 1 };

NVML nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length)
{
    BEGIN(nvmlDeviceGetName, device);
    char text[128], profile[32] = "";
    if (call.instance > 0)
        snprintf(profile, sizeof profile, " MIG %ug.%ugb", slices_of(&call), 10 * slices_of(&call));
    snprintf(text, sizeof text, "%s%s", gpu_of(&call)->name, profile);
    return copy_text(text, name, length);
}

NVML nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length)
{
    BEGIN(nvmlDeviceGetUUID, device);
    char text[64];
    snprintf(text, sizeof text, "MIG-6770756d-6f6e-4000-9000-%08x%04x", call.gpu + 1, call.instance);
    if (call.instance > 0)
        return copy_text(text, uuid, length);
    return copy_text(gpu_of(&call)->uuid, uuid, length);
}

NVML nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned length)
{
    BEGIN(nvmlDeviceGetSerial, device);
    char text[32];
    snprintf(text, sizeof text, SERIAL_FORMAT, call.gpu);
    return copy_text(text, serial, length);
}

NVML nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *version, unsigned length)
{
    BEGIN(nvmlDeviceGetVbiosVersion, device);
    return copy_text("96.00.74.00.01", version, length);
}

static nvmlReturn_t pci_info(enum function function, nvmlDevice_t device, nvmlPciInfo_t *info)
{
    struct call call = begin_device(function, device);
    NEED(call.status == NVML_SUCCESS, call.status);
    memset(info, 0, sizeof *info);
    info->bus = PCI_BUS(call.gpu);
    info->pciDeviceId = 0x233010de; /* an H100 SXM5 */
    info->pciSubSystemId = 0x16c110de;
    snprintf(info->busId, sizeof info->busId, BUS_FORMAT, info->bus);
    snprintf(info->busIdLegacy, sizeof info->busIdLegacy, "0000:%02X:00.0", info->bus & 0xff);
    return NVML_SUCCESS;
}

NVML nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *info)
{
    return pci_info(FN_nvmlDeviceGetPciInfo, device, info);
}

NVML nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *info)
{
    return pci_info(FN_nvmlDeviceGetPciInfo_v2, device, info);
}

NVML nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *info)
{
    return pci_info(FN_nvmlDeviceGetPciInfo_v3, device, info);
}

FIXED(nvmlDeviceGetIndex, unsigned, call.gpu)
FIXED(nvmlDeviceGetMinorNumber, unsigned, call.gpu)
FIXED(nvmlDeviceGetBrand, unsigned, 14) /* NVML_BRAND_NVIDIA */
FIXED(nvmlDeviceGetBoardId, unsigned, PCI_BUS(call.gpu) << 8)
FIXED(nvmlDeviceGetMultiGpuBoard, unsigned, 0)
FIXED(nvmlDeviceGetPersistenceMode, unsigned, ENABLED)
FIXED(nvmlDeviceGetComputeMode, unsigned, 0) /* default: shared */
FIXED(nvmlDeviceGetDisplayMode, unsigned, DISABLED)
FIXED(nvmlDeviceGetDisplayActive, unsigned, DISABLED)
FIXED_PAIR(nvmlDeviceGetCudaComputeCapability, int, 9, 0)
FIXED_PAIR(nvmlDeviceGetEccMode, unsigned, ENABLED, ENABLED)

NVML nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned type, unsigned counter,
                                 unsigned long long *count)
{
    (void)type, (void)counter;
    BEGIN(nvmlDeviceGetTotalEccErrors, device);
    *count = 0;
    return NVML_SUCCESS;
}

/* Driver models exist on Windows only; peers ask all the same. */
NVML nvmlDeviceGetDriverModel(nvmlDevice_t device, unsigned *current, unsigned *pending)
{
    (void)current, (void)pending;
    BEGIN(nvmlDeviceGetDriverModel, device);
    return NVML_ERROR_NOT_SUPPORTED;
}

#if DRIVER >= 470
FIXED(nvmlDeviceGetArchitecture, unsigned, 9) /* NVML_DEVICE_ARCH_HOPPER */
#endif

#if DRIVER >= 580
FIXED(nvmlDeviceGetNumGpuCores, unsigned, 16896)
FIXED(nvmlDeviceGetMemoryBusWidth, unsigned, 5120)
FIXED(nvmlDeviceGetBusType, unsigned, 2) /* NVML_BUS_TYPE_PCIE */
FIXED(nvmlDeviceGetIrqNum, unsigned, 100 + call.gpu)
FIXED(nvmlDeviceGetPowerSource, unsigned, 0) /* mains */
#endif

#if DRIVER >= 615
NVML nvmlDeviceGetDriverModel_v2(nvmlDevice_t device, unsigned *current, unsigned *pending)
{
    (void)current, (void)pending;
    BEGIN(nvmlDeviceGetDriverModel_v2, device);
    return NVML_ERROR_NOT_SUPPORTED;
}
#endif
