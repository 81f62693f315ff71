// usage: open_module [FOLDER]
// Opens a store of a module, from FOLDER if it is given, and says how that went. Copied by trust_test to where it is to lie.

#include <sallyport/sallyport.hpp>

#include <cstdlib>
#include <iostream>

int main(int count, char** arguments) {
  try {
    static_cast<void>(sallyport::client::open("echo:", {.modules = count > 1 ? arguments[1] : ""}));
    std::cout << "opened" << std::endl;
  } catch (const sallyport::lock_error& error) {
    std::cout << error.what() << std::endl;
  }
  // Not by way of a leak checker, which can't look into a program with more rights than its caller.
  std::quick_exit(0);
}
