#include "parallel/communicator.h"

#include <c10/util/Exception.h>

namespace mezzo::parallel {
namespace {

class Done final : public Pending {
 public:
  void wait() override {}
};

class SoloCommunicator final : public Communicator {
 public:
  std::unique_ptr<Pending> all_reduce(const at::Tensor&, ReduceOp) override {
    return std::make_unique<Done>();
  }
  std::unique_ptr<Pending> all_gather(const at::Tensor& all, const at::Tensor& in) override {
    all.view_as(in).copy_(in);
    return std::make_unique<Done>();
  }
  std::unique_ptr<Pending> broadcast(const at::Tensor&, int) override {
    return std::make_unique<Done>();
  }
  std::unique_ptr<Pending> all_to_all(const at::Tensor& out, const Counts&, const at::Tensor& in,
                                      const Counts&) override {
    out.copy_(in);
    return std::make_unique<Done>();
  }
};

}  // namespace

std::shared_ptr<Communicator> solo_communicator() {
  return std::make_shared<SoloCommunicator>();
}

std::string text_of(const std::exception& failure) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&failure);
  std::string text = of_torch != nullptr ? of_torch->what_without_backtrace() : failure.what();
  if (const std::size_t end = text.find("\nException raised from"); end != std::string::npos) {
    text.erase(end);
  }
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

}  // namespace mezzo::parallel
