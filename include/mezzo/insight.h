// Shows what mixed precision does to a training run, and what to change.
#pragma once

#include "mezzo/insight_candidates.h"
#include "mezzo/insight_diagnosis.h"
#include "mezzo/insight_dry_run.h"
#include "mezzo/insight_examples.h"
#include "mezzo/insight_explain.h"
#include "mezzo/insight_lint.h"
#include "mezzo/insight_lint_script.h"
#include "mezzo/insight_search.h"
#include "mezzo/insight_shadow.h"
#include "mezzo/insight_watch.h"
