#pragma once

#include <system_error>

namespace sallyport::backend_api {

/// For a loadable module, which has a copy of this code: from now on lock_category() is
/// `of_the_program`, that of the program which loaded it. Codes are compared by the address of their
/// category. Call it before any code is made.
void share_lock_category(const std::error_category& of_the_program) noexcept;

}  // namespace sallyport::backend_api
