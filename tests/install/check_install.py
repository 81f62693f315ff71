"""Installs a build of Sallyport as a user would, and uses it as a user would.

usage: check_install.py --build-dir DIR ... (see tests/install/CMakeLists.txt)

Installs into a fresh prefix below --work-dir, moves that away from where it was installed to (a package may be
unpacked anywhere), and then
  - looks at the installed files: the headers include nothing but std, each compiles on its own, and nothing names a
    folder of the build;
  - builds and runs user_project/ with find_package(sallyport), and the same program with pkg-config;
  - runs the installed command, if there is one;
  - lets both load every module, from where it was moved to;
  - builds linked_project/ with the backends linked in, with and without shared libraries, and lets it take locks on
    real servers;
  - installs each component on its own, and once with DESTDIR.
Exits with 1 and says what was wrong. Nothing is skipped: a tool that is missing is a failure.
"""

import argparse
import concurrent.futures
import contextlib
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "layering"))
from check_sources import STD_HEADERS  # noqa: E402

COMMAND_TIMEOUT_SECONDS = 120
SERVER_START_SECONDS = 20
# Debian's redis-tools has the server under another name; it is what it is called.
REDIS_SERVER = "/usr/bin/redis-check-rdb"
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]', re.MULTILINE)


class Failure(Exception):
    pass


def check(good, what):
    if not good:
        raise Failure(what)


def run(arguments, **options):
    """Runs a command and returns what it printed; a Failure with its output if it did not end well."""
    arguments = [str(argument) for argument in arguments]
    environment = dict(os.environ)
    # The user's own settings must not find another Sallyport, nor bring flags of their own.
    for name in ("CMAKE_PREFIX_PATH", "CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "LD_LIBRARY_PATH",
                 "PKG_CONFIG_PATH", "CXXFLAGS", "LDFLAGS", "DESTDIR", "SALLYPORT_MODULES", "SALLYPORT_STORE"):
        environment.pop(name, None)
    environment.update(options.pop("environment", {}))
    try:
        done = subprocess.run(arguments, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=COMMAND_TIMEOUT_SECONDS, **options)
    except FileNotFoundError as error:
        raise Failure(f"{arguments[0]} is missing") from error
    except subprocess.TimeoutExpired as error:
        raise Failure(f"still running after {COMMAND_TIMEOUT_SECONDS} s: {' '.join(arguments)}") from error
    if done.returncode != 0:
        raise Failure(f"status {done.returncode}: {' '.join(arguments)}\n{done.stdout}")
    return done.stdout


def at_once(function, items):
    """What the function returns for each item; two run at a time, because there are two cores."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return list(pool.map(function, items))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def server(arguments, port, **options):
    """Runs a server until the end of the block; it answers on the port when the block begins."""
    process = subprocess.Popen([str(each) for each in arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, **options)
    try:
        end = time.monotonic() + SERVER_START_SECONDS
        while True:
            check(process.poll() is None, f"{arguments[0]} ended at once")
            check(time.monotonic() < end, f"{arguments[0]} does not answer")
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.02)
        yield
    finally:
        process.kill()
        process.wait()


def files_below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


class Check:
    def __init__(self, options):
        self.options = options
        self.work = options.work_dir
        self.prefix = self.work / "elsewhere"
        self.shared = options.library_type == "SHARED_LIBRARY"
        self.flags = options.compiler_flags.split()
        self.can_be_static = not self.shared and not any(flag.startswith("-fsanitize") for flag in self.flags)
        self.modules_dir = f"{options.lib_dir}/sallyport/modules-{options.version}"

    def everything(self):
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        for step in (self.install, self.installed_files, self.no_paths_of_the_build, self.headers_are_std_only,
                     self.headers_compile_alone, self.with_cmake, self.with_pkg_config, self.command, self.modules,
                     self.static_program, self.linked_programs, self.refuses_to_link, self.refuses_other_versions, self.names_what_is_missing, self.components,
                     self.staged):
            began = time.monotonic()
            step()
            print(f"{step.__name__}: ok, {time.monotonic() - began:.1f} s", flush=True)

    def cmake_install(self, prefix, *arguments, **options):
        run([self.options.cmake, "--install", self.options.build_dir, "--prefix", prefix, *arguments], **options)

    def install(self):
        first = self.work / "first"
        self.cmake_install(first)
        first.rename(self.prefix)

    def wanted_files(self):
        """Every file that has to be there, by component."""
        options = self.options
        source = options.source_dir
        lib, doc = options.lib_dir, options.doc_dir
        package = f"{lib}/cmake/sallyport"
        development = [f"{options.include_dir}/{header.relative_to(source / 'include')}"
                       for header in (source / "include").rglob("*.hpp")]
        development += [f"{package}/sallyport{name}.cmake" for name in ("Config", "ConfigVersion", "Targets")]
        development += [f"{lib}/pkgconfig/sallyport.pc", f"{lib}/libsallyport_backends.a"]
        development += [f"{package}/sallyportBackend-{name}.cmake" for name in options.modules]
        development += [f"{lib}/pkgconfig/sallyport-{name}.pc" for name in options.modules]
        library = []
        if self.shared:
            minor = options.version.rsplit(".", 1)[0]
            library = [f"{lib}/libsallyport.so.{minor}", f"{lib}/libsallyport.so.{options.version}"]
            development += [f"{lib}/libsallyport.so"]
        else:
            development += [f"{lib}/libsallyport.a"]
        documentation = [f"{doc}/{name}" for name in ("LICENSE", "README.md", "CHANGELOG.md", "docs/install.md")]
        command = [f"{options.bin_dir}/sallyport"] if options.command else []
        modules = [f"{self.modules_dir}/sallyport_{name}.so" for name in options.modules]
        return {"development": development, "library": library, "documentation": documentation, "command": command,
                "modules": modules}

    def installed_files(self):
        there = set(files_below(self.prefix))
        for component, files in self.wanted_files().items():
            for name in files:
                check(name in there, f"{component}: {name} was not installed")
        libraries = [name for name in there if re.search(r"\.(a|so)(\.|$)", name)
                     and not name.startswith(f"{self.modules_dir}/sallyport_")]
        strange = [name for name in libraries if not re.search(r"/libsallyport(_backends)?\.", name)]
        check(not strange, f"users see one library and its backends, not also {strange}")

    def no_paths_of_the_build(self):
        texts = [self.prefix / name for name in files_below(self.prefix)
                 if name.endswith((".cmake", ".pc", ".hpp"))]
        check(len(texts) > 5, "there are texts to look at")
        for text in texts:
            content = text.read_text(encoding="utf-8")
            for folder in (self.options.build_dir, self.options.source_dir, self.work):
                check(str(folder) not in content, f"{text} names {folder}")
            if text.suffix in (".cmake", ".pc"):
                for flag in ("-Werror", "-Wall", "-fsanitize", "GLIBCXX_ASSERTIONS"):
                    check(flag not in content, f"{text} passes {flag} on to users")

    def headers(self):
        return sorted((self.prefix / self.options.include_dir).rglob("*.hpp"))

    def headers_are_std_only(self):
        include_dir = self.prefix / self.options.include_dir
        for header in self.headers():
            for style, name in INCLUDE.findall(header.read_text(encoding="utf-8")):
                ours = style == "<" and (include_dir / name).is_file()
                check(ours or name in STD_HEADERS, f"{header} includes {name}, which is neither std nor installed")

    def headers_compile_alone(self):
        """Each header is the first include of a source of its own; two compilers run, and each takes several."""
        folder = self.work / "alone"
        folder.mkdir()
        include_dir = self.prefix / self.options.include_dir
        sources = []
        for header in self.headers():
            name = header.relative_to(include_dir)
            source = folder / (str(name).replace("/", "_") + ".cpp")
            source.write_text(f"#include <{name}>\n#include <{name}>\n", encoding="utf-8")
            sources.append(str(source))
        arguments = [self.options.compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror",
                     f"-I{include_dir}"]
        compilers = [subprocess.Popen(arguments + sources[start::2], stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, text=True) for start in (0, 1)]
        outputs = [compiler.communicate(timeout=COMMAND_TIMEOUT_SECONDS)[0] for compiler in compilers]
        for compiler, output in zip(compilers, outputs):
            check(compiler.returncode == 0, f"a header does not compile alone:\n{output}")

    def stores(self, folder):
        """The stores that need no server, of those that are built in."""
        known = {"memory": "memory:", "local": f"local:{folder}"}
        stores = [known[name] for name in self.options.backends if name in known]
        check("memory:" in stores, "the store memory: is built in")
        return stores

    def run_user_program(self, program, name):
        folder = self.work / f"store-{name}"
        folder.mkdir()
        output = run([program, *self.stores(folder)])
        check(output.count(": token ") == len(self.stores(folder)), f"unexpected output: {output}")

    def configure(self, project, build_dir, *arguments):
        return run([self.options.cmake, "-S", self.work / project, "-B", build_dir, "-G",
                    self.options.generator, f"-DCMAKE_CXX_COMPILER={self.options.compiler}",
                    f"-DCMAKE_CXX_FLAGS={self.options.compiler_flags}", f"-DCMAKE_PREFIX_PATH={self.prefix}",
                    *arguments])

    def with_cmake(self):
        # A copy: the project must not find its way to the sources from where it lies.
        shutil.copytree(HERE / "user_project", self.work / "user_project")
        build_dir = self.work / "user-cmake"
        output = self.configure("user_project", build_dir, "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")
        check(f"modules: {self.prefix / self.modules_dir}\n" in output, f"the folder of modules is named: {output}")
        run([self.options.cmake, "--build", build_dir])
        compiled = (build_dir / "compile_commands.json").read_text(encoding="utf-8")
        check(str(self.options.source_dir / "include") not in compiled, "the user's project sees our sources")
        self.run_user_program(build_dir / "user", "cmake")

    def pkg_config(self, *arguments, package="sallyport"):
        folder = self.prefix / self.options.lib_dir / "pkgconfig"
        return run(["pkg-config", *arguments, package], environment={"PKG_CONFIG_PATH": str(folder)}).split()

    def with_pkg_config(self):
        check(self.pkg_config("--modversion") == [self.options.version], "pkg-config names our version")
        check(self.pkg_config("--libs") and self.pkg_config("--static", "--libs"), "there is something to link")
        program = self.work / "user-pkg-config"
        arguments = ["--cflags", "--libs"] + ([] if self.shared else ["--static"])
        run([self.options.compiler, "-std=c++20", *self.flags, self.work / "user_project/main.cpp", "-o", program,
             *self.pkg_config(*arguments), *self.run_path()])
        self.run_user_program(program, "pkg-config")
        if not self.shared:
            check(set(self.pkg_config("--libs")) == set(self.pkg_config("--static", "--libs")),
                  "with an archive, --static makes no difference")

    def run_path(self):
        return [f"-Wl,-rpath,{self.prefix / self.options.lib_dir}"] if self.shared else []

    def command(self):
        if not self.options.command:
            return
        output = run([self.prefix / self.options.bin_dir / "sallyport", "--version"])
        check(self.options.version in output, f"sallyport --version says {output!r}")

    def opened(self, program, scheme, *arguments, **options):
        """What a program says about a store where nobody answers. That it says so proves that the module was loaded."""
        # MariaDB's addresses name a database.
        address = f"{scheme}://127.0.0.1:1" + ("/test" if scheme in ("mariadb", "mysql") else "")
        environment = dict(options.pop("environment", {}), SALLYPORT_STORE=address)
        try:
            output = run([program, *(arguments or [address])], environment=environment)
        except Failure as failed:
            return str(failed)
        raise Failure(f"{program} found a store at {address}: {output}")

    def modules(self):
        """Each module is found by what is installed beside it, and by any program that is told the folder."""
        told = {"SALLYPORT_MODULES": self.pkg_config("--variable=modulesdir")[0]}
        beside = self.prefix / self.options.bin_dir / "user"
        elsewhere = self.work / "user-pkg-config"

        def load(module):
            item, scheme = module
            loaded = [self.opened(beside, scheme), self.opened(elsewhere, scheme, environment=told)]
            if self.options.command:
                loaded.append(self.opened(self.prefix / self.options.bin_dir / "sallyport", scheme, "who", "door"))
            for output in loaded:
                check("could not be reached" in output, f"module {item}: {output}")
            # A shared library finds what is beside it, a program far from the moved tree does not, and says where.
            missed = self.opened(elsewhere, scheme)
            check(("could not be reached" if self.shared else f"sallyport_{item}.so was not found") in missed,
                  f"module {item}: {missed}")

        beside.parent.mkdir(exist_ok=True)
        shutil.copy2(elsewhere, beside)
        try:
            at_once(load, self.options.modules.items())
        finally:
            beside.unlink()

    def static_program(self):
        """A program without any shared library: everything but modules, which it refuses with a reason."""
        if not self.can_be_static:
            return
        program = self.work / "user-static"
        run([self.options.compiler, "-std=c++20", "-static", *self.flags, self.work / "user_project/main.cpp", "-o",
             program, *self.pkg_config("--static", "--cflags", "--libs")])
        self.run_user_program(program, "static")
        told = {"SALLYPORT_MODULES": str(self.prefix / self.modules_dir)}
        for item, scheme in self.options.modules.items():
            output = self.opened(program, scheme, environment=told)
            check("linked with -static" in output, f"module {item}: {output}")

    @contextlib.contextmanager
    def servers(self):
        """The addresses of a Redis and a memcached server, by a name that has to be looked up."""
        redis, memcached = free_port(), free_port()
        nobody = ["-u", "nobody"] if os.geteuid() == 0 else []
        with server(["redis-server", "--port", redis, "--bind", "127.0.0.1", "--save", ""], redis,
                    executable=REDIS_SERVER, cwd=self.work), \
                server([self.options.memcached, "-l", "127.0.0.1", "-p", memcached, "-U", "0", *nobody], memcached):
            yield f"redis://localhost:{redis}", f"memcached://localhost:{memcached}"

    def linked_programs(self):
        """Programs that carry their backends take locks, and look for no module."""
        shutil.copytree(HERE / "linked_project", self.work / "linked_project")
        kinds = {"linked": list(self.options.modules)}
        if self.can_be_static:
            kinds["linked-static"] = self.options.static_modules

        def build(kind):
            self.configure("linked_project", self.work / kind, f"-DBACKENDS={';'.join(kinds[kind])}",
                           f"-DSTATIC={kind == 'linked-static'}")
            run([self.options.cmake, "--build", self.work / kind])

        at_once(build, kinds)
        alone = {"SALLYPORT_MODULES": str(self.work / "nowhere")}
        with self.servers() as (redis, memcached):
            for kind in kinds:
                output = run([self.work / kind / "linked", redis, memcached], environment=alone)
                check(output.count(": locked\n") == 2, f"{kind}: {output}")
            if self.can_be_static:
                # Redis only, with pkg-config.
                program = self.work / "linked-pkg-config"
                run([self.options.compiler, "-static", *self.flags,
                     self.work / "linked-static/CMakeFiles/linked.dir/main.cpp.o", "-o", program,
                     *self.pkg_config("--static", "--libs", package="sallyport-redis")])
                check(": locked\n" in run([program, redis], environment=alone), "linked with pkg-config")
                missed = self.opened(program, "memcached", environment=alone)
                check("sallyport_memcached.so was not found" in missed, f"a backend that nobody linked: {missed}")

        def reach(item):
            kind, name = item
            output = self.opened(self.work / kind / "linked", self.options.modules[name], environment=alone)
            check("could not be reached" in output, f"{kind}, {name}: {output}")

        at_once(reach, [(kind, name) for kind, names in kinds.items() for name in names
                        if name not in ("redis", "memcached")])

    def refuses_to_link(self):
        """A backend that cannot be linked is refused when a project is configured, with the reason."""
        reasons = {name: "cannot be linked without" for name in self.options.modules
                   if name not in self.options.static_modules}
        reasons["nosuchstore"] = "no backend 'nosuchstore'"

        def refused(name):
            try:
                self.configure("linked_project", self.work / f"refused-{name}", f"-DBACKENDS={name}", "-DSTATIC=ON")
            except Failure as failed:
                # CMake breaks lines.
                text = " ".join(str(failed).split())
                check(reasons[name] in text, f"another reason: {failed}")
            else:
                raise Failure(f"{name} was not refused")

        if self.can_be_static:
            at_once(refused, reasons)

    def refuses_other_versions(self):
        project = self.work / "user_project/CMakeLists.txt"
        text = project.read_text(encoding="utf-8")
        check("find_package(sallyport 0.1 REQUIRED)" in text, "the user's project asks for a version")
        project.write_text(text.replace("sallyport 0.1 ", "sallyport 99.0 "), encoding="utf-8")
        try:
            self.configure("user_project", self.work / "user-other-version")
        except Failure as refused:
            check("99.0" in str(refused), f"refused for another reason: {refused}")
        else:
            raise Failure("version 99.0 was found")
        finally:
            project.write_text(text, encoding="utf-8")

    def names_what_is_missing(self):
        """On a machine without a library that an archive needs, find_package says which, and how to get it."""
        config = self.prefix / self.options.lib_dir / "cmake/sallyport/sallyportConfig.cmake"
        needed = re.findall(r"^sallyport_find_library\((\S+)", config.read_text(encoding="utf-8"), re.MULTILINE)
        check(self.shared or bool(needed) == ("local" in self.options.backends), f"needed libraries: {needed}")
        if not needed:
            return
        try:
            self.configure("user_project", self.work / "user-bare-machine", f"-DCMAKE_FIND_ROOT_PATH={self.work / 'bare'}",
                                        "-DCMAKE_FIND_ROOT_PATH_MODE_LIBRARY=ONLY")
        except Failure as refused:
            check(f"sallyport needs the library {needed[0]}" in str(refused), f"another reason: {refused}")
        else:
            raise Failure(f"{needed} were found where they are not")

    def components(self):
        together = set()
        for component, files in self.wanted_files().items():
            prefix = self.work / f"component-{component}"
            self.cmake_install(prefix, "--component", component)
            there = set(files_below(prefix)) if prefix.exists() else set()
            check(set(files) <= there, f"component {component} lacks {sorted(set(files) - there)}")
            check(not together & there, f"in two components: {sorted(together & there)}")
            together |= there
        check(together == set(files_below(self.prefix)), "the components together are the whole")

    def staged(self):
        stage = self.work / "stage"
        self.cmake_install("/opt/sallyport", environment={"DESTDIR": str(stage)})
        check(files_below(stage / "opt/sallyport") == files_below(self.prefix), "DESTDIR stages the same files")


def parse(arguments):
    parser = argparse.ArgumentParser(description="see the top of this file")
    for name in ("--build-dir", "--source-dir", "--work-dir"):
        parser.add_argument(name, type=pathlib.Path, required=True)
    for name in ("--version", "--cmake", "--generator", "--compiler", "--compiler-flags", "--library-type",
                 "--include-dir", "--lib-dir", "--bin-dir", "--doc-dir", "--memcached"):
        parser.add_argument(name, required=True)
    parser.add_argument("--backends", nargs="+", required=True)
    parser.add_argument("--modules", nargs="*", metavar="NAME=SCHEME", required=True)
    parser.add_argument("--static-modules", nargs="*", metavar="NAME", required=True)
    parser.add_argument("--command", action="store_true")
    options = parser.parse_args(arguments)
    options.modules = dict(item.split("=") for item in options.modules)
    return options


def main():
    try:
        Check(parse(sys.argv[1:])).everything()
    except Failure as failure:
        print(f"FAILED: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
