// mezzo/parallel.h: many processes that train one model.
#pragma once

#include "mezzo/process_group.h"
