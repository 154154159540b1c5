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
	"github.com/weft-net/weft/internal/vm/downtime"
	"github.com/weft-net/weft/internal/vm/guestimage"
)

func TestMain(m *testing.M) { os.Exit(nettest.MainWithPrograms(m)) }

// TestMigration: a guest under QEMU migrates to another node and back, with its address, under a policy that allows it
// to respond and not to connect: established connections of its peer continue, also if only the guest sends, and with
// the masquerade binding, over VXLAN and WireGuard; no line is lost or changed.
func TestMigration(t *testing.T) {
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		nettest.SkipMissing(t, "qemu-system-x86_64 is missing")
	}
	nettest.Need(t, "vxlan")
	nettest.Need(t, "tap")
	programs := nettest.Programs(t)
	c, err := guestimage.DefaultConfig(programs)
	if err != nil {
		nettest.SkipMissing(t, err.Error())
	}
	image, err := c.Build(t.Context())
	if err != nil {
		nettest.SkipMissing(t, err.Error())
	}
	for binding, encapsulation := range map[model.VMBinding]string{
		model.VMDirect: "vxlan", model.VMMasquerade: "wireguard",
	} {
		t.Run(string(binding)+" "+encapsulation, func(t *testing.T) {
			r, err := migration.Run(t.Context(), migration.Config{
				Agent: filepath.Join(programs, "weft-agent"), BinDir: filepath.Join(programs, "cni"),
				Speaker: filepath.Join(programs, "weft-guest"), Image: image,
				Encapsulation: encapsulation, Binding: binding, N: 2, Log: slog.New(slog.DiscardHandler),
				OnMigration: func(n int, g downtime.Measurement) { t.Logf("migration %d: %+v", n+1, g) },
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
