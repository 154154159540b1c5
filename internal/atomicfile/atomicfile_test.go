// SPDX-License-Identifier: Apache-2.0

package atomicfile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

const killedWriter = "ATOMICFILE_KILLED_WRITER"

func TestMain(m *testing.M) {
	if path := os.Getenv(killedWriter); path != "" {
		// The killed writer: half of the content is written, and the rest never comes.
		err := WriteFrom(path, func(w io.Writer) error {
			if _, err := io.WriteString(w, "half"); err != nil {
				return err
			}
			fmt.Println("written")
			_, err := io.Copy(io.Discard, os.Stdin) // until the kill, or the end of the test
			return errors.Join(errors.New("not killed"), err)
		}, 0o600, CrashSafe)
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(nettest.Main(m))
}

// writer starts a process that stops between the write and the rename, until kill.
func writer(t *testing.T, path string) (kill func()) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), killedWriter+"="+path)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "written\n" {
		t.Fatalf("the writer said %q: %v", line, err)
	}
	var once sync.Once
	kill = func() {
		once.Do(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			_ = in.Close()
		})
	}
	t.Cleanup(kill)
	return kill
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// names lists a directory.
func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return strings.Join(out, " ")
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	defer syscall.Umask(syscall.Umask(0o077))
	for _, c := range []struct {
		text string
		mode fs.FileMode
		d    Durability
	}{{"first, longer", 0o600, CrashSafe}, {"second", 0o644, Durable}, {"", 0o604, CrashSafe}} {
		check(t, Write(path, []byte(c.text), c.mode, c.d))
		if got := read(t, path); got != c.text {
			t.Errorf("content %q, want %q", got, c.text)
		}
		if st, err := os.Stat(path); err != nil || st.Mode() != c.mode {
			t.Errorf("mode %v, want %v: %v", st.Mode(), c.mode, err)
		}
	}
	if got := names(t, dir); got != "file" {
		t.Errorf("in the directory: %s", got)
	}
}

// A fill that fails, a missing directory, and a name that a directory has leave everything unchanged.
func TestFailure(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	check(t, Write(path, []byte("old"), 0o600, CrashSafe))
	refused := errors.New("refused")
	err := WriteFrom(path, func(w io.Writer) error {
		_, err := io.WriteString(w, "new")
		return errors.Join(err, refused)
	}, 0o600, Durable)
	if !errors.Is(err, refused) || read(t, path) != "old" {
		t.Errorf("%v, %q", err, read(t, path))
	}
	if err := Write(filepath.Join(dir, "none", "file"), nil, 0o600, CrashSafe); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	check(t, os.MkdirAll(filepath.Join(dir, "taken", "full"), 0o700))
	if err := Write(filepath.Join(dir, "taken"), nil, 0o600, CrashSafe); err == nil {
		t.Error("a directory was replaced")
	}
	if got := names(t, dir); got != "file taken" {
		t.Errorf("in the directory: %s", got)
	}
}

// The temporary file of a writer that was killed before the rename is not the file, and the next writer removes it.
func TestKilledWriter(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	check(t, Write(path, []byte("old"), 0o600, CrashSafe))
	kill := writer(t, path)
	if got := names(t, dir); got != ".weft-new-file.tmp file" || read(t, path) != "old" {
		t.Fatalf("while it writes: %s, %q", got, read(t, path))
	}
	// Neither Sweep nor another writer removes the temporary file of a live writer, and the other writer does not wait.
	check(t, Sweep(dir))
	check(t, Write(path, []byte("other"), 0o600, CrashSafe))
	if got := names(t, dir); got != ".weft-new-file.tmp file" || read(t, path) != "other" {
		t.Fatalf("beside it: %s, %q", got, read(t, path))
	}
	kill()
	if got := read(t, filepath.Join(dir, ".weft-new-file.tmp")); got != "half" {
		t.Fatalf("the killed one left %q", got)
	}
	check(t, Write(path, []byte("new"), 0o600, CrashSafe))
	if got := names(t, dir); got != "file" || read(t, path) != "new" {
		t.Errorf("after the next write: %s, %q", got, read(t, path))
	}
}

func TestSweep(t *testing.T) {
	dir := t.TempDir()
	writer(t, filepath.Join(dir, "one"))()
	writer(t, filepath.Join(dir, "two"))()
	writer(t, filepath.Join(dir, "live"))
	for _, foreign := range []string{".weft-new-x", "x.tmp", "x"} {
		check(t, os.WriteFile(filepath.Join(dir, foreign), nil, 0o600))
	}
	check(t, os.Symlink("x", filepath.Join(dir, ".weft-new-link.tmp")))
	check(t, Sweep(dir))
	if got := names(t, dir); got != ".weft-new-live.tmp .weft-new-x x x.tmp" {
		t.Errorf("after Sweep: %s", got)
	}
}

func TestRemove(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	first, second := writer(t, path), writer(t, path)
	if got := names(t, dir); got != ".weft-new-file.1.tmp .weft-new-file.tmp" {
		t.Fatalf("two writers: %s", got)
	}
	first()
	second()
	check(t, os.WriteFile(path, nil, 0o600))
	check(t, Remove(path))
	check(t, Remove(path))
	if got := names(t, dir); got != "" {
		t.Errorf("after Remove: %s", got)
	}
}

// TestWriteVia: the caller's temporary file is not in the file's directory, and its earlier content does not matter.
func TestWriteVia(t *testing.T) {
	dir := t.TempDir()
	temp, path := filepath.Join(dir, "temp"), filepath.Join(dir, "records", "file")
	check(t, os.Mkdir(filepath.Dir(path), 0o700))
	check(t, os.WriteFile(temp, []byte("half, and longer than the next"), 0o600))
	check(t, WriteVia(temp, path, []byte("new"), 0o640, Durable))
	if st, err := os.Stat(path); err != nil || st.Mode() != 0o640 || read(t, path) != "new" {
		t.Errorf("%v, %q: %v", st, read(t, path), err)
	}
	check(t, os.Mkdir(filepath.Join(dir, "taken"), 0o700))
	if err := WriteVia(temp, filepath.Join(dir, "taken"), []byte("new"), 0o640, CrashSafe); err == nil {
		t.Error("a directory was replaced")
	}
	if got := names(t, dir); got != "records taken" || names(t, filepath.Dir(path)) != "file" {
		t.Errorf("in the directory: %s", got)
	}
}

// The temporary name that a killed Link left is a hard link to the file itself: a writer must not write into it.
func TestLeftLink(t *testing.T) {
	dir := t.TempDir()
	program, path := filepath.Join(dir, "program"), filepath.Join(dir, "file")
	check(t, os.WriteFile(program, []byte("program"), 0o700))
	for _, left := range []func(string) error{
		func(temp string) error { return os.Link(program, temp) },
		func(temp string) error { return os.Symlink(program, temp) },
	} {
		check(t, left(tempName(path, 0)))
		check(t, Write(path, []byte("text"), 0o600, CrashSafe))
		if got := read(t, program); got != "program" || read(t, path) != "text" {
			t.Errorf("the program is %q, the file %q", got, read(t, path))
		}
		check(t, left(tempName(path, 0)))
		check(t, Link(program, path, Durable))
		if read(t, path) != "program" {
			t.Errorf("the second name reads %q", read(t, path))
		}
		check(t, Link(program, path, CrashSafe)) // it is one already
		check(t, left(tempName(path, 0)))
		check(t, Symlink("program", path, Durable))
		if to, err := os.Readlink(path); to != "program" || err != nil {
			t.Errorf("the symbolic link leads to %q: %v", to, err)
		}
		if got := names(t, dir); got != "file program" {
			t.Errorf("in the directory: %s", got)
		}
	}
}

// When many create a file, one succeeds, and all see its complete content.
func TestCreate(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	var wg sync.WaitGroup
	won := make(chan string, 32)
	for i := range cap(won) {
		wg.Go(func() {
			text := strings.Repeat(fmt.Sprint(i, " "), 10_000)
			err := Create(path, []byte(text), 0o400, CrashSafe)
			if err == nil {
				won <- text
			} else if !errors.Is(err, fs.ErrExist) {
				t.Errorf("writer %d: %v", i, err)
			}
			if got, err := os.ReadFile(path); err != nil || len(got) < 10_000 {
				t.Errorf("writer %d reads %d bytes: %v", i, len(got), err)
			}
		})
	}
	wg.Wait()
	if len(won) != 1 {
		t.Fatalf("%d created it", len(won))
	}
	if text := <-won; read(t, path) != text {
		t.Error("the content is not the one that won")
	}
	if got := names(t, dir); got != "key" {
		t.Errorf("in the directory: %s", got)
	}
}

// Writers of one file neither wait for each other nor mix, while others sweep.
func TestConcurrent(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			text := []byte(strings.Repeat(fmt.Sprint(i), 1+1000*i))
			for range 100 {
				if err := errors.Join(Write(path, text, 0o600, CrashSafe), Sweep(dir)); err != nil {
					t.Error(err)
					return
				}
				got, err := os.ReadFile(path)
				if err != nil || len(got) == 0 || len(got) != 1+1000*int(got[0]-'0') ||
					strings.Trim(string(got), string(got[:1])) != "" {
					t.Errorf("read %d bytes: %v", len(got), err)
					return
				}
			}
		})
	}
	wg.Wait()
	if got := names(t, dir); got != "file" {
		t.Errorf("in the directory: %s", got)
	}
}

// A file's name may have the greatest length that the file system allows.
func TestLongName(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, strings.Repeat("x", 254)+"a"), filepath.Join(dir, strings.Repeat("x", 254)+"b")
	kill := writer(t, a)
	check(t, Write(b, []byte("b"), 0o600, CrashSafe))
	kill()
	check(t, Write(a, []byte("a"), 0o600, CrashSafe))
	if read(t, a) != "a" || read(t, b) != "b" || strings.Contains(names(t, dir), tempPrefix) {
		t.Errorf("%q, %q, %s", read(t, a), read(t, b), names(t, dir))
	}
}

// TestPowerLoss copies the disk under a mounted file system, as it was when the call returned, and mounts the copy.
func TestPowerLoss(t *testing.T) {
	dir := t.TempDir()
	disk, mnt := filepath.Join(dir, "disk"), filepath.Join(dir, "mnt")
	check(t, os.Mkdir(mnt, 0o700))
	check(t, os.WriteFile(disk, make([]byte, 16<<20), 0o600))
	if out, err := exec.Command("mkfs.ext4", "-q", disk).CombinedOutput(); err != nil {
		nettest.Skip(t, fmt.Sprintf("no ext4 can be made: %v: %s", err, out))
	}
	mount := func(disk string) (umount func()) {
		t.Helper()
		// Nothing is written to the disk implicitly: neither after a while, nor because a file replaces another.
		out, err := exec.Command("mount", "-o", "loop,commit=900,noauto_da_alloc", disk, mnt).CombinedOutput()
		if err != nil {
			nettest.Skip(t, fmt.Sprintf("no loop device can be mounted: %v: %s", err, out))
		}
		var once sync.Once
		umount = func() { once.Do(func() { check(t, syscall.Unmount(mnt, 0)) }) }
		t.Cleanup(umount)
		return umount
	}
	umount := mount(disk)
	replaced, fresh, created := filepath.Join(mnt, "replaced"), filepath.Join(mnt, "fresh"), filepath.Join(mnt, "created")
	copies := map[string]func() error{
		replaced: func() error { return Write(replaced, []byte("new"), 0o600, Durable) },
		fresh:    func() error { return Write(fresh, []byte("new"), 0o600, Durable) },
		created:  func() error { return Create(created, []byte("new"), 0o600, Durable) },
	}
	check(t, Write(replaced, []byte("old"), 0o600, Durable))
	for path, write := range copies {
		check(t, write())
		b, err := os.ReadFile(disk)
		check(t, err)
		check(t, os.WriteFile(disk+"."+filepath.Base(path), b, 0o600))
	}
	umount()
	for path := range copies {
		umount := mount(disk + "." + filepath.Base(path))
		if got, err := os.ReadFile(path); err != nil || string(got) != "new" {
			t.Errorf("%s after the power loss: %q, %v", filepath.Base(path), got, err)
		}
		umount()
	}
}
