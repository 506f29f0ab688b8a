# One JSON line for each case that a GoogleTest program says it ran, as it comes: name, outcome, seconds. `part` names the part of ./run gpu.
/^\[  *(OK|FAILED|SKIPPED) *\] [A-Za-z0-9_\/]+\.[A-Za-z0-9_\/]+.*\([0-9]+ ms\)/ {
  match($0, /\[ *[A-Z]+ *\]/)
  outcome = substr($0, RSTART, RLENGTH)
  rest = substr($0, RSTART + RLENGTH + 1)
  split(rest, words, /[ ,]/)
  match(rest, /[0-9]+ ms/)
  status = outcome ~ /OK/ ? "passed" : outcome ~ /SKIPPED/ ? "skipped" : "failed"
  printf "{\"part\": \"%s\", \"test\": \"%s\", \"status\": \"%s\", \"seconds\": %.3f}\n", part, words[1], status, substr(rest, RSTART, RLENGTH) / 1000
  fflush()
}
