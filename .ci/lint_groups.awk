# Joins sources that compile with the same flags, so that clang-tidy parses their headers once for several of them.
#   awk -v size=N -v folder=FOLDER -f lint_groups.awk FILES COMPILE_COMMANDS
# FILES: absolute paths of sources, a line each. Prints a line for each group, "torch|plain GROUP FILE...". Writes GROUP with the files one
# after the other, FOLDER/compile_commands.json with the groups' commands added, and FOLDER/lines with "GROUP LINE FILE" for each
# file: the line of GROUP that comes before the file's first.
# Neighbours in FILES (one folder's, whose local names are alike) go to different groups.

FILENAME == ARGV[1] { wanted[$0] = 1; next }

{ database = database $0 "\n" }
/^  "directory":/ { directory = $0 }
/^  "command":/ { command = $0 }
/^  "file":/ {
  split($0, parts, "\"")
  file = parts[4]
  if (!(file in wanted) || file in seen) next
  seen[file] = 1
  flags = command
  sub(/ -o [^ ]+ -c [^ ]+",$/, "", flags)
  if (!(flags in count)) kinds[++kind_count] = flags
  members[flags, count[flags]++] = file
}

function write(line) {
  print line > group
  ++group_lines
}

# Names that many sources declare, each for itself, get the source's ordinal; `main` always: at a macro the check for duplicate
# includes forgets those of before.
function append(file, ordinal,   text, line, lines, i, own) {
  while ((getline line < file) > 0) {
    text = text line "\n"
    for (i = 1; i <= local_count; ++i) if (line ~ "^(constexpr|const|int) .*[ &]" locals[i] "[^A-Za-z0-9_]") own[i] = 1
  }
  close(file)
  own[1] = 1
  for (i in own) write("#define " locals[i] " " locals[i] "_" ordinal "  // NOLINT")
  print group, group_lines, file > (folder "/lines")
  lines = gsub(/\n/, "\n", text)
  printf "%s", text > group
  group_lines += lines
  for (i in own) write("#undef " locals[i])
}

# The members START, START + STEP, ... of those with FLAGS.
function make_group(flags, start, step,   i, place, quoted) {
  printf "%s %s", (flags ~ /torch\/csrc\/api\/include/ ? "torch" : "plain"), group
  group_lines = 0
  for (i = start; i < count[flags]; i += step) {
    file = members[flags, i]
    append(file, i)
    printf " %s", file
    place = file
    sub(/\/[^\/]*$/, "", place)
    if (index(quoted, " -iquote " place " ") == 0) quoted = quoted " -iquote " place " "
  }
  printf "\n"
  close(group)
  database = database ",\n{\n" directory "\n" flags quoted " -c " group "\",\n  \"file\": \"" group "\"\n}"
}

END {
  local_count = split("main kWhere kOperators", locals, " ")
  sub(/\n\]\n*$/, "", database)
  for (k = 1; k <= kind_count; ++k) {
    flags = kinds[k]
    step = int((count[flags] + size - 1) / size)
    for (start = 0; start < step; ++start) {
      group = folder "/group_" k "_" start ".cpp"
      make_group(flags, start, step)
    }
  }
  print database "\n]" > (folder "/compile_commands.json")
}
