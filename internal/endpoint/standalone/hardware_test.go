// SPDX-License-Identifier: Apache-2.0

package standalone_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

// Two network cards on one network, named by their PCI addresses in sysfs, are moved into two containers, which then
// reach each other, and back.
func TestHostDevicePCIHardware(t *testing.T) {
	if os.Getenv("WEFT_VM") == "" {
		nettest.Skip(t, "this host has no network cards that a test may have")
	}
	h := newHost(t)
	h.root = t.TempDir()
	// Sysfs shows the network devices of the namespace that it was mounted in.
	if err := os.Mkdir(h.root+"/sys", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("sys", h.root+"/sys", "sysfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Unmount(h.root+"/sys", syscall.MNT_DETACH) }()
	cards := []string{"0000:00:10.0", "0000:00:11.0"}
	var names []string
	for _, card := range cards {
		found, _ := filepath.Glob("/sys/bus/pci/devices/" + card + "/virtio*/net/*")
		if len(found) != 1 {
			t.Fatalf("card %s: %v", card, found)
		}
		name := filepath.Base(found[0])
		nettest.Run(t, nil, "nsenter", "--net=/proc/1/ns/net", "ip", "link", "set", name, "netns", pid())
		defer nettest.Run(t, nil, "ip", "link", "set", name, "netns", "1")
		names = append(names, name)
	}
	before := nettest.Run(t, nil, "ip", "-o", "-d", "link")
	one, two := quickNS(t), quickNS(t)
	c1 := conf("1.1.0", "host-device", `,"pciBusID":"`+cards[0]+`"`+lentIPAM)
	c2 := conf("1.1.0", "host-device", `,"runtimeConfig":{"deviceID":"`+cards[1]+`"}`+lentIPAM)
	a := h.must("host-device", "ADD", c1, one)
	b := h.must("host-device", "ADD", c2, two, "CNI_CONTAINERID=c2")
	if !strings.Contains(a.stdout, `"pciID": "`+cards[0]+`"`) || !strings.Contains(b.stdout, `"pciID": "`+cards[1]+`"`) {
		t.Errorf("results: %s %s", a.stdout, b.stdout)
	}
	nettest.Run(t, one, "ping", "-c1", "-W20", "10.6.0.3")
	nettest.Run(t, two, "ping", "-c1", "-W20", "fd00:6::2")
	h.must("host-device", "CHECK", withPrev(c1, a.stdout), one)
	if x := h.call("host-device", "STATUS", c1, nil); x.code() != 50 ||
		!strings.Contains(x.stdout, "has no network device on this node") {
		t.Errorf("STATUS while it is away: %s", x.stdout)
	}
	h.must("host-device", "DEL", c1, one)
	h.must("host-device", "DEL", c2, two, "CNI_CONTAINERID=c2")
	for _, name := range names {
		nettest.Run(t, nil, "ip", "link", "show", name)
	}
	if got := nettest.Run(t, nil, "ip", "-o", "-d", "link"); got != before {
		t.Errorf("after DEL\n%s\nbefore ADD\n%s", got, before)
	}
	h.must("host-device", "STATUS", c1, nil)
	h.nothingOf("host-device")
}

// pid returns the ID of this process in the initial PID namespace.
func pid() string {
	link, err := os.Readlink("/proc/self")
	if err != nil {
		return ""
	}
	return link
}
