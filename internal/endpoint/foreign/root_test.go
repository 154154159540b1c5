// SPDX-License-Identifier: Apache-2.0

package foreign

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

// TestMain is a plugin, too, when it is executed as one: a program that needs no other file.
func TestMain(m *testing.M) {
	if os.Getenv("CNI_COMMAND") == cni.Version && filepath.Base(os.Args[0]) == "answers" {
		wd, _ := os.Getwd()
		fmt.Print(wd, " ", os.Args[0])
		os.Exit(0)
	}
	os.Exit(nettest.Main(m))
}

// TestRoot: a plugin is found and executed below Root, through a link that is meant for a process in there.
func TestRoot(t *testing.T) {
	root := t.TempDir()
	// This host's files, but for /mnt: the plugin needs its libraries.
	if err := unix.Mount("/", root, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(root, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	mnt := filepath.Join(root, "mnt")
	if err := unix.Mount("tmpfs", mnt, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(mnt, "real"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(mnt, "real", "answers"), b, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/mnt/real", filepath.Join(mnt, "bin")); err != nil {
		t.Fatal(err)
	}
	call := Call{Verb: cni.Version, Type: "answers", Request: model.Request{CNIPath: []string{"/mnt/bin"}}}
	inside := &Runner{Root: root}
	if out, err := inside.Run(t.Context(), call); err != nil || string(out) != "/ /mnt/bin/answers" {
		t.Errorf("%s, %v", out, err)
	}
	for _, runner := range []*Runner{{}, {Root: filepath.Join(root, "none")}} {
		if out, err := runner.Run(t.Context(), call); err == nil {
			t.Errorf("%+v: %s", runner, out)
		}
	}
}
