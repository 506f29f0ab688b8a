// Messages about words on the command line that nothing takes.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace mezzo::cli {

/// After a parse that failed: names the commands and options that the program does not know, each
/// with the nearest that it does; empty if every word was understood.
std::string unknown_words(const CLI::App& app);

}  // namespace mezzo::cli
