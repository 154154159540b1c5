// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// sysfs creates directories and links (from=to) below a root.
func sysfs(t *testing.T, paths ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, path := range paths {
		path, target, link := strings.Cut(path, "=")
		if link {
			path, target = filepath.Dir(path), filepath.Join(path, "..", filepath.Base(path))+"="+target
		}
		if err := os.MkdirAll(filepath.Join(root, path), 0o755); err != nil {
			t.Fatal(err)
		}
		if at, to, ok := strings.Cut(target, "="); ok {
			if err := os.Symlink(to, filepath.Join(root, at)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return root
}

func TestDevices(t *testing.T) {
	s := pair(t)
	device(t, s)
	nettest.Run(t, s.Host.ns, "ip", "link", "add", "atop", "address", "02:00:00:00:00:05", "type", "bridge")
	nettest.Run(t, s.Host.ns, "ip", "link", "property", "add", "dev", "ens5", "altname", "the-card-in-the-fifth-slot")
	nettest.Run(t, s.Host.ns, "sysctl", "-qw", "net.ipv4.conf.ens5.rp_filter=2")
	s.Host.Root = sysfs(t, "/sys/bus/pci/devices/0000:00:05.0/net/ens5",
		"/sys/bus/pci/devices/0000:00:05.0/driver=../../../drivers/e1000",
		"/sys/bus/pci/devices/0000:00:06.0/virtio0/net/ens5",
		"/sys/bus/pci/devices/0000:00:07.0/driver=../../../drivers/vfio-pci",
		"/sys/bus/pci/devices/0000:00:08.0/net/nowhere", "/sys/bus/auxiliary/devices/sf.1/net/ens5",
		"/sys/devices/x/net/ens5")
	for device, want := range map[state.Device]string{
		{Name: "ens5"}:                       "ens5  ",
		{Name: "the-card-in-the-fifth-slot"}: "ens5  ",
		{Name: "ens6"}:                       "",
		{PCI: "0000:00:05.0"}:                "ens5 e1000 0000:00:05.0",
		{ID: "0000:00:05.0"}:                 "ens5 e1000 0000:00:05.0",
		{PCI: "0000:00:06.0"}:                "ens5  0000:00:06.0",
		{PCI: "0000:00:07.0"}:                " vfio-pci 0000:00:07.0",
		{PCI: "0000:00:08.0"}:                "  0000:00:08.0",
		{PCI: "0000:00:09.0"}:                "",
		{PCI: "sf.1"}:                        "",
		{ID: "sf.1"}:                         "ens5  ",
		{ID: "sf.2"}:                         "",
		{Path: "/sys/devices/x"}:             "ens5  ",
		{Path: "/sys/devices/y"}:             "",
		{MAC: state.MAC{2, 0, 0, 0, 0, 6}}:   "",
	} {
		q := state.Query{Space: state.Host, Device: device}
		answers, err := s.Observe(t.Context(), []state.Query{q})
		if err != nil {
			t.Fatal(err)
		}
		a := answers[q]
		got := strings.Join([]string{a.Link.Name, a.Driver, a.PCI}, " ")
		if !a.Found {
			got = ""
		}
		if got != want {
			t.Errorf("%+v: %q, want %q", device, got, want)
		}
	}
	q := state.Query{Space: state.Host, Device: state.Device{Name: "ens5"}}
	answers, err := s.Observe(t.Context(), []state.Query{q})
	if err != nil {
		t.Fatal(err)
	}
	a := answers[q]
	var fromLink []string
	for _, addr := range a.Addrs {
		fromLink = append(fromLink, addr.String())
	}
	for _, r := range a.Routes {
		fromLink = append(fromLink, r.String())
	}
	for _, set := range a.Sysctls {
		if strings.Contains(set.Name, "/rp_filter") || strings.Contains(set.Name, "addr_gen_mode") {
			fromLink = append(fromLink, set.String())
		}
	}
	want := []string{
		"addr 192.0.2.5/24 dev ens5", "addr 2001:db8::5/64 dev ens5",
		"route 198.51.100.0/24 via 192.0.2.1 dev ens5 table 254 scope 0 type 1",
		"sysctl net/ipv4/conf/ens5/rp_filter = 2", "sysctl net/ipv6/conf/ens5/addr_gen_mode = 0",
	}
	if d := cmp.Diff(want, fromLink); d != "" {
		t.Error(d)
	}
	if len(a.Sysctls) != len(strings.Fields(settings["ipv4"]+" "+settings["ipv6"])) {
		t.Errorf("%d settings: %v", len(a.Sysctls), a.Sysctls)
	}
}

// Several links can have one address: a physical device is preferred to links on top of it.
func TestDeviceOfMAC(t *testing.T) {
	s := pair(t)
	mac := state.MAC{2, 0, 0, 0, 0, 5}
	for _, name := range []string{"atop", "upon"} {
		nettest.Run(t, s.Host.ns, "ip", "link", "add", name, "address", mac.String(), "type", "bridge")
	}
	q := state.Query{Space: state.Host, Device: state.Device{MAC: mac}}
	answers, err := s.Observe(t.Context(), []state.Query{q})
	if err != nil || answers[q].Link.Name != "atop" {
		t.Errorf("%+v %v", answers[q].Link, err)
	}
}

func TestFilesAndTables(t *testing.T) {
	s := pair(t)
	s.Host.Root = t.TempDir()
	for name, text := range map[string]string{"list": "a\nb\n", "long": strings.Repeat("x", 1<<20+1)} {
		if err := os.WriteFile(filepath.Join(s.Host.Root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := func(path string) (state.Answer, error) {
		q := state.Query{Space: state.Host, File: path}
		answers, err := s.Observe(t.Context(), []state.Query{q})
		return answers[q], err
	}
	if a, err := file("/list"); err != nil || !a.Found || a.Value != "a\nb\n" {
		t.Errorf("%+v %v", a, err)
	}
	if a, err := file("/none"); err != nil || a.Found {
		t.Errorf("%+v %v", a, err)
	}
	if _, err := file("/long"); err == nil || !strings.Contains(err.Error(), "/long: longer than 1048576 bytes") {
		t.Errorf("%v", err)
	}
	if _, err := file("/"); err == nil {
		t.Error("a directory was read")
	}
	device(t, s)
	nettest.Run(t, s.Host.ns, "ip", "route", "add", "10.0.0.0/8", "dev", "ens5", "table", "4711")
	nettest.Run(t, s.Host.ns, "ip", "-6", "rule", "add", "from", "fd00::/8", "lookup", "99")
	q := state.Query{Space: state.Host, Tables: true}
	answers, err := s.Observe(t.Context(), []state.Query{q})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]uint32{99, 253, 254, 255, 4711}, answers[q].Tables); d != "" || len(answers[q].Rules) != 6 {
		t.Errorf("%s rules %v", d, answers[q].Rules)
	}
}
