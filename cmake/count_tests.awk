# Prints "passed failed skipped" of a JUnit report that ctest wrote. A GoogleTest program counts with its own cases, any
# other test as one; a test that fails without saying which case did (a crash, a time-out) is one failure.

/<testcase / {
  close_test()
  open = 1
  status = field("status")
}
/<skipped message="SKIP_/ { status = "skip" }
/\[       OK \] / { ok++ }
/\[  PASSED  \] [0-9]+ test/ { p += number("PASSED  \\] ") ; summaries++ }
/\[  FAILED  \] [0-9]+ test/ { f += number("FAILED  \\] ") }
/\[  SKIPPED \] [0-9]+ test/ { s += number("SKIPPED \\] ") }
END {
  close_test()
  print passed + 0, failed + 0, skipped + 0
}

function field(name) {
  match($0, name "=\"[^\"]*\"")
  return substr($0, RSTART + length(name) + 2, RLENGTH - length(name) - 3)
}

function number(before) {
  match($0, before)
  return substr($0, RSTART + RLENGTH) + 0
}

function close_test() {
  if (!open) return
  if (status == "skip") s++
  else if (status == "disabled") s++
  else if (status == "run") { if (!summaries) p++ }
  else {
    if (!summaries) p = ok
    if (!f) f = 1
  }
  passed += p; failed += f; skipped += s
  p = f = s = ok = summaries = 0
}
