// SPDX-License-Identifier: Apache-2.0

package migration_test

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
	programs, image := needs(t)
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

// needs returns the directory of the programs and a guest, or skips the test.
func needs(t *testing.T) (programs string, image guestimage.Image) {
	t.Helper()
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		nettest.SkipMissing(t, "qemu-system-x86_64 is missing")
	}
	nettest.Need(t, "vxlan")
	nettest.Need(t, "tap")
	programs = nettest.Programs(t)
	c, err := guestimage.DefaultConfig(programs)
	if err != nil {
		nettest.SkipMissing(t, err.Error())
	}
	if image, err = c.Build(t.Context()); err != nil {
		nettest.SkipMissing(t, err.Error())
	}
	return programs, image
}

// TestIdle: guests that run and do nothing need no work of the agent, which neither asks them nor writes anything. The report
// says what it costs.
func TestIdle(t *testing.T) {
	programs, image := needs(t)
	leases := 0
	r, err := migration.RunIdle(t.Context(), migration.IdleConfig{
		Agent: filepath.Join(programs, "weft-agent"), BinDir: filepath.Join(programs, "cni"),
		Speaker: filepath.Join(programs, "weft-guest"), Image: image, VMs: 2, Span: time.Second,
		OnLease: func(int, time.Duration) { leases++ },
	})
	if err != nil {
		t.Fatal(err)
	}
	if leases != 2 || len(r.Rows) != 3 {
		t.Fatalf("%d VMs have a lease, and the report is %+v, want 2 and three rows", leases, r)
	}
	none, boot, idle := r.Rows[0], r.Rows[1], r.Rows[2]
	if none.VMs != 0 || boot.VMs != 2 || idle.VMs != 2 || idle.Seconds < 1 || idle.RSS < 1 {
		t.Errorf("the report is %+v", r)
	}
	if boot.CPU <= 0 || idle.CPU >= boot.CPU {
		t.Errorf("the agent used %.1f ms of CPU while VMs began, and %.1f ms in a second in which they were idle", boot.CPU, idle.CPU)
	}
	var text strings.Builder
	if err := r.Text(&text); err != nil || !strings.Contains(text.String(), "VMs idle  2") {
		t.Errorf("the report prints %q (%v)", text.String(), err)
	}
}

// TestIdleConfig: values out of range are refused by name.
func TestIdleConfig(t *testing.T) {
	for _, bad := range []struct {
		cfg  migration.IdleConfig
		want string
	}{
		{migration.IdleConfig{VMs: -1, Span: time.Second}, "--idle"},
		{migration.IdleConfig{VMs: migration.MaxIdle + 1, Span: time.Second}, "--idle"},
		{migration.IdleConfig{VMs: 1}, "--idle-span"},
	} {
		if _, err := migration.RunIdle(t.Context(), bad.cfg); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%+v: %v, want %s", bad.cfg, err, bad.want)
		}
	}
}
