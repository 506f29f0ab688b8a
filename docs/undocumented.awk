# Reads Doxygen's warnings and prints those that stand: a public name without words. Words may be shared: declarations without
# a blank line between them share the comment above the first, and a type's comment speaks for its fields and constructors.

/^ *$/ { next }
/Member .* \(variable\) of (class|struct)/ { next }
is_constructor($0) { next }
/is not documented/ && shares_words($0) { next }
{ print; found = 1 }
END { exit found }

function is_constructor(warning,   parts, name, owner) {
  if (warning !~ /\(function\) of (class|struct) /) return 0
  name = warning; sub(/.*Member (explicit )?/, "", name); sub(/\(.*/, "", name)
  owner = warning; sub(/.* of (class|struct) /, "", owner); sub(/ is not documented.*/, "", owner); sub(/.*::/, "", owner)
  return name == owner
}

# Looks up from the declaration to a comment, and no further than a blank line or the scope's beginning.
function shares_words(warning,   parts, file, line, i) {
  split(warning, parts, ":")
  file = parts[1]; line = parts[2]
  if (!(file in length_of)) {
    i = 0
    while ((getline text[file, ++i] < file) > 0) {}
    length_of[file] = i
  }
  for (i = line - 1; i > 0; --i) {
    if (text[file, i] ~ /^ *\/\/\//) return 1
    if (text[file, i] ~ /^ *$|\{$|^ *(public|protected):/) return 0
  }
  return 0
}
