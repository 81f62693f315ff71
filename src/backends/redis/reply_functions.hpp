#pragma once

namespace sallyport::backends::redis {

/// The table of functions with which hiredis makes replies, as the installed version has it: 0.14 counts
/// elements in an int, 1.x in a size_t, and 1.x knows numbers and truths of RESP3 besides. Those are null:
/// a server that was not asked for RESP3 sends none.
template <class Functions, class Builder>
Functions reply_functions() {
  Functions all{};
  all.createString = &Builder::make_string;
  all.createArray = &Builder::make_array;
  all.createInteger = &Builder::make_integer;
  all.createNil = &Builder::make_nil;
  all.freeObject = &Builder::free_object;
  return all;
}

}  // namespace sallyport::backends::redis
