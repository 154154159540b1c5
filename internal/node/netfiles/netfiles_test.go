// SPDX-License-Identifier: Apache-2.0

package netfiles

import (
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/flannel"
	"github.com/weft-net/weft/internal/model"
)

// TestFiles: each file has the form that its readers know, is replaced atomically (a reader that has the old one open
// reads all of it), and is not touched while its content is the same: readers watch it.
func TestFiles(t *testing.T) {
	env := flannel.SubnetEnv{
		Networks: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}, Subnet: netip.MustParsePrefix("10.42.3.1/24"),
		MTU: 1450, IPMasq: true,
	}
	const subnet = "FLANNEL_NETWORK=10.42.0.0/16\nFLANNEL_SUBNET=10.42.3.1/24\n"
	for name, c := range map[string]struct {
		write       func(path string, mtu int, log *slog.Logger) error
		first, next string
		option      string
	}{
		"mtu": {WriteMTU, "1450", "1400", "network.mtuFile: "},
		"subnet": {func(path string, mtu int, log *slog.Logger) error {
			next := env
			next.MTU = mtu
			return WriteSubnet(path, next, log)
		}, subnet + "FLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n", subnet +
			"FLANNEL_MTU=1400\nFLANNEL_IPMASQ=true\n", "flannel.subnetFile: "},
	} {
		t.Run(name, func(t *testing.T) {
			log := slog.New(slog.NewTextHandler(t.Output(), nil))
			path := filepath.Join(t.TempDir(), "run", "vendor", "file") // its directories do not exist yet
			write := func(mtu int, want string) os.FileInfo {
				t.Helper()
				if err := c.write(path, mtu, log); err != nil {
					t.Fatal(err)
				}
				if b, err := os.ReadFile(path); err != nil || string(b) != want {
					t.Errorf("MTU %d: %q, %v, want %q", mtu, b, err, want)
				}
				info, err := os.Stat(path)
				if err != nil {
					t.Fatal(err)
				}
				return info
			}
			first := write(1450, c.first)
			if first.Mode().Perm() != 0o644 {
				t.Errorf("mode %v: other vendors' plugins must be able to read it", first.Mode())
			}
			if again := write(1450, c.first); !os.SameFile(first, again) {
				t.Error("the same text is written again")
			}
			if next := write(1400, c.next); os.SameFile(first, next) {
				t.Error("the file is changed in place: a reader may see half of it")
			}
			if all, err := os.ReadDir(filepath.Dir(path)); err != nil || len(all) != 1 {
				t.Errorf("%v, %v beside the file", all, err)
			}
			if err := os.WriteFile(path, []byte("somebody else's\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			write(1400, c.next)

			err := c.write(filepath.Join(path, "below-a-file"), 1400, log)
			var fault *model.Error
			if !errors.As(err, &fault) || fault.Code != model.CodeIO || !strings.HasPrefix(err.Error(), c.option) {
				t.Errorf("no place for the file: %v", err)
			}
		})
	}
}

// TestNoMTU: no file is written where none is configured, or the MTU is not limited.
func TestNoMTU(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	path := filepath.Join(dir, "mtu")
	for name, err := range map[string]error{"no file": WriteMTU("", 1450, log), "no MTU": WriteMTU(path, 0, log)} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) > 0 {
		t.Errorf("%v, %v", all, err)
	}
	if err := WriteMTU(path, 1450, log); err != nil {
		t.Fatal(err)
	}
	if err := WriteMTU(path, 0, log); err != nil {
		t.Error(err)
	}
	if b, _ := os.ReadFile(path); string(b) != "1450" {
		t.Errorf("an MTU that is not known any more has replaced the last one: %q", b)
	}
}
