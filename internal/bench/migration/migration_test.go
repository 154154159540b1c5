// SPDX-License-Identifier: Apache-2.0

package migration_test

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/weft-net/weft/internal/bench/migration"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/vm/gap"
	"github.com/weft-net/weft/internal/vm/guestimage"
)

func TestMain(m *testing.M) { os.Exit(nettest.MainWithPrograms(m)) }

// TestMigration: a guest under QEMU goes to another node and back, with its address, under a policy that lets it answer
// and not call: the connections that its peer has begun go on, also where the guest alone speaks on one, and behind its
// pod's translation, by VXLAN and through WireGuard; no line is lost or changed.
func TestMigration(t *testing.T) {
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		nettest.Without(t, "there is no qemu-system-x86_64")
	}
	nettest.Need(t, "vxlan")
	nettest.Need(t, "tap")
	programs := nettest.Programs(t)
	c, err := guestimage.Usual(programs)
	if err != nil {
		nettest.Without(t, err.Error())
	}
	image, err := c.Make(t.Context())
	if err != nil {
		nettest.Without(t, err.Error())
	}
	for binding, encapsulation := range map[model.VMBinding]string{
		model.VMDirect: "vxlan", model.VMMasquerade: "wireguard",
	} {
		t.Run(string(binding)+" "+encapsulation, func(t *testing.T) {
			r, err := migration.Run(t.Context(), migration.Config{
				Agent: filepath.Join(programs, "weft-agent"), BinDir: filepath.Join(programs, "cni"),
				Speaker: filepath.Join(programs, "weft-guest"), Image: image,
				Encapsulation: encapsulation, Binding: binding, N: 2, Log: slog.New(slog.DiscardHandler),
				Went: func(n int, g gap.Gap) { t.Logf("migration %d: %+v", n+1, g) },
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range r.Rows {
				if row.N != 2 || row.Median <= 0 {
					t.Errorf("%+v", row)
				}
			}
		})
	}
}
