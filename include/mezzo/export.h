// MEZZO_API marks what the shared libraries export; everything else is hidden.
#pragma once

#define MEZZO_API __attribute__((visibility("default")))
