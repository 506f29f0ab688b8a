# A header's first comment describes the file; a comment behind a declaration describes what stands before it; what the
# compiler writes (copies, inherited constructors) needs no words.
1,/^#pragma once/ {
  1s|^// |/// \\file\n/// |
  s|^//$|///|
  s|^// |/// |
}
s|\([;,{}]\)\( *\)// |\1\2///< |
s#^ .*) *\(const\)\{0,1\} *\(noexcept\)\{0,1\} *= *\(default\|delete\);.*##
s|^ *using \([A-Za-z0-9_:]*\)::[A-Za-z0-9_]*;$||
