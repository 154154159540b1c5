// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/vm/macvtap"
)

// Third-party plugins that attach a pod by a macvtap, or to a port of the other pods' bridge.
const (
	foreignMacvtap = `{"type":"macvtap"}`
	foreignBridge  = `{"type":"foreign-bridge"}`
)

// foreignPlugin creates a macvtap on a link to the bridge of the other pods, as macvtap-cni does on a node's interface,
// or, by its other name, a port of that bridge. It assigns addresses.
const foreignPlugin = `#!/bin/sh
cat > /dev/null
end="p$CNI_CONTAINERID"
case $CNI_COMMAND in
ADD)
	ip link add "$end" type veth peer name "u$CNI_CONTAINERID" && ip link set "$end" master cni0 up || exit 1
	if [ "${0##*/}" = macvtap ]; then
		ip link set "u$CNI_CONTAINERID" up &&
	ip link add link "u$CNI_CONTAINERID" name "m$CNI_CONTAINERID" type macvtap mode bridge || exit 1
		ip link set "m$CNI_CONTAINERID" netns "$CNI_NETNS" name "$CNI_IFNAME" || exit 1
	else
		ip link set "u$CNI_CONTAINERID" netns "$CNI_NETNS" name "$CNI_IFNAME" || exit 1
	fi
	n=${CNI_CONTAINERID#pod}
	four=10.244.1.$((100 + n))/24 six=fd00:1::$(printf %x $((256 + n)))/64
	nsenter --net="$CNI_NETNS" sh -c "ip addr add $four dev $CNI_IFNAME && ip addr add $six dev $CNI_IFNAME nodad && ip link set $CNI_IFNAME up" || exit 1
	mac=$(nsenter --net="$CNI_NETNS" ip -br link show "$CNI_IFNAME" | awk '{print $3}')
	printf '{"cniVersion":"1.0.0","interfaces":[{"name":"%s","mac":"%s","sandbox":"%s"}],"ips":[' "$CNI_IFNAME" "$mac" "$CNI_NETNS"
	printf '{"interface":0,"address":"%s","gateway":"10.244.1.1"},{"interface":0,"address":"%s","gateway":"fd00:1::1"}]}' "$four" "$six"
	;;
DEL)
	ip link del "$end" 2> /dev/null
	;;
esac
exit 0
`

// plugins returns a directory with the plugin under both names.
func plugins(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"macvtap", "foreign-bridge"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(foreignPlugin), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// needs skips tests that the host does not support: filtering of bridged frames needs br_netfilter, and a macvtap needs
// root.
func (s site) needs(t *testing.T, policy bool) {
	t.Helper()
	switch {
	case s.vmConf != foreignMacvtap && policy:
		nettest.NeedBridgeNetfilter(t)
	case s.vmConf == foreignMacvtap:
		nettest.Need(t, "macvtap")
		ns := nettest.NS(t, "tapped")
		nettest.Run(t, ns, "ip", "link", "add", "lower", "type", "veth", "peer", "name", "wire")
		nettest.Run(t, ns, "ip", "link", "add", "link", "lower", "name", "probe", "type", "macvtap", "mode", "bridge")
		f, err := openMacvtap(ns, "probe")
		if err != nil {
			nettest.SkipMissing(t, "a device file for a macvtap needs root: "+err.Error())
		}
		_ = f.Close()
	}
}

// openMacvtap opens a macvtap as a hypervisor does, without virtio-net headers.
func openMacvtap(ns *netns.NS, link string) (*os.File, error) {
	var f *os.File
	err := ns.Do(func() error {
		d, ok := macvtap.Find(link)
		if !ok {
			return os.ErrNotExist
		}
		var err error
		if f, err = d.Open(); err != nil {
			return err
		}
		ifr, err := unix.NewIfreq(link)
		if err != nil {
			return err
		}
		ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		raw, err := f.SyscallConn()
		if err != nil {
			return err
		}
		var set error
		err = raw.Control(func(fd uintptr) { set = unix.IoctlIfreq(int(fd), unix.TUNSETIFF, ifr) })
		if err == nil {
			err = set
		}
		return err
	})
	return f, err
}

// relayMacvtap emulates the network device of a VM on a macvtap.
func relayMacvtap(t *testing.T, pod *netns.NS, link string, guest *netns.NS, mac string) {
	t.Helper()
	own := nettest.OpenTap(t, guest, "eth0", false)
	theirs, err := openMacvtap(pod, link)
	if err != nil {
		t.Fatal(err)
	}
	nettest.Run(t, guest, "ip", "link", "set", "eth0", "address", mac, "up")
	nettest.ForwardFrames(t, own, theirs)
}
