// SPDX-License-Identifier: Apache-2.0

package standalone_test

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

// TestMacvtap: where Multus executes the plugin, it passes the device that the kubelet has allocated to the pod.
func TestMacvtap(t *testing.T) {
	nettest.Need(t, "macvtap")
	nettest.NeedDevices(t)
	h := newHost(t)
	h.uplink()
	const file = "/dev/tap1879048216"
	ns := quickNS(t)
	h.life("macvtap", `,"deviceID":"tap1879048216-vepa-ens5","mtu":1400,"mac":"02:00:00:00:00:77"`, ns, func(string) {
		wantLink(t, ns, "1879048216: eth0@", "macvtap mode vepa", "mtu 1400", "02:00:00:00:00:77", "UP")
		if info, err := os.Stat(file); err != nil || info.Mode()&fs.ModeCharDevice == 0 {
			t.Errorf("%s: %v %v", file, info, err)
		}
	})
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is left: %v", file, err)
	}
	for device, want := range map[string]string{
		`,"deviceID":"dataplaneMvp0"`: "macvtap-cni",
		"":                            `deviceID \"\"`,
		`,"deviceID":"tap1879048216-bridge-none7"`: `lowerDevice \"none7\"`,
	} {
		if a := h.call("macvtap", "ADD", conf("1.1.0", "macvtap", device), ns); a.code() == 0 || !strings.Contains(a.stdout, want) {
			t.Errorf("a device %s: %s, want %s", device, a.stdout, want)
		}
	}
}
