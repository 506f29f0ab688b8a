// Everything. Programs that compile often include the headers that they use instead.
#pragma once

#include "mezzo/amp.h"
#include "mezzo/autocast.h"
#include "mezzo/error.h"
#include "mezzo/hardware.h"
#include "mezzo/messages.h"
#include "mezzo/policy.h"
#include "mezzo/report.h"
#include "mezzo/version.h"
