// Which names the shared libraries export.
#pragma once

/// Marks what the shared libraries export; everything else is hidden.
#define MEZZO_API __attribute__((visibility("default")))
