# One JSON line for each GoogleTest case in ctest's JUnit file: name, outcome, milliseconds.
/^\[  *(OK|FAILED|SKIPPED) *\] [A-Za-z0-9_\/]+\.[A-Za-z0-9_\/]+.*\([0-9]+ ms\)/ {
  match($0, /\[ *[A-Z]+ *\]/)
  outcome = substr($0, RSTART, RLENGTH)
  rest = substr($0, RSTART + RLENGTH + 1)
  split(rest, words, /[ ,]/)
  match(rest, /[0-9]+ ms/)
  status = outcome ~ /OK/ ? "passed" : outcome ~ /SKIPPED/ ? "skipped" : "failed"
  printf "{\"test\": \"%s\", \"status\": \"%s\", \"seconds\": %.3f}\n", words[1], status, substr(rest, RSTART, RLENGTH) / 1000
}
