// SPDX-License-Identifier: Apache-2.0

package standalone_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

// A device whose name is in use on the node at DEL stays in the container, and is moved back with all its settings when
// the name is free.
func TestHostDeviceNameTaken(t *testing.T) {
	h := newHost(t)
	h.card()
	ns := quickNS(t)
	before := cardState(t)
	c := conf("1.1.0", "host-device", `,"device":"ens5"`+lentIPAM)
	prev := withPrev(c, h.must("host-device", "ADD", c, ns).stdout)
	nettest.Run(t, nil, "ip", "link", "add", "ens5", "type", "bridge")
	if a := h.call("host-device", "DEL", prev, ns); a.exit == 0 ||
		!strings.Contains(a.stdout, "rename the host link ens5") {
		t.Errorf("DEL: %s", a.stdout)
	}
	if out, err := nettest.Try(nil, "ip", "link", "show", "eth0"); err == nil && strings.Contains(out, "alias ens5") {
		t.Errorf("the device is on the node under the container's name: %s", out)
	}
	if out := nettest.Run(t, ns, "ip", "link", "show", "eth0"); !strings.Contains(out, "alias ens5") {
		t.Errorf("in the container: %s", out)
	}
	nettest.Run(t, nil, "ip", "link", "del", "ens5")
	h.must("host-device", "DEL", prev, ns)
	if after := cardState(t); after != before {
		t.Errorf("the node before\n%s\nand after\n%s", before, after)
	}
}

// So does one that the kernel moved to the node because the container's namespace was deleted: DEL reports it, and the
// next DEL restores it.
func TestHostDeviceFallenNameTaken(t *testing.T) {
	h := newHost(t)
	h.card()
	ns := quickNS(t)
	before := cardState(t)
	c := conf("1.1.0", "host-device", `,"device":"ens5"`+lentIPAM)
	prev := withPrev(c, h.must("host-device", "ADD", c, ns).stdout)
	// A virtual device would go with its namespace, so the kernel's part is played: it keeps the alias.
	nettest.Run(t, ns, "ip", "link", "set", "eth0", "netns", strconv.Itoa(os.Getpid()), "name", "dev7")
	nettest.Run(t, nil, "ip", "link", "add", "ens5", "type", "bridge")
	if a := h.call("host-device", "DEL", prev, nil); a.exit == 0 || !strings.Contains(a.stdout, "rename the link ens5") {
		t.Errorf("DEL: %s", a.stdout)
	}
	nettest.Run(t, nil, "ip", "link", "del", "ens5")
	h.must("host-device", "DEL", prev, nil)
	if after := cardState(t); after != before {
		t.Errorf("the node before\n%s\nand after\n%s", before, after)
	}
}
