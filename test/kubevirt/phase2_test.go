// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"encoding/xml"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"libvirt.org/go/libvirtxml"
)

// serve starts a program that prints the devices and then serves a guest, until the end of the test.
func serve(t *testing.T, argv ...string) (devices string) {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(os.Getenv("WEFT_BIN_DIR"), "kubevirt")+":"+os.Getenv("PATH"))
	var errs strings.Builder
	cmd.Stderr = &errs
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	for lines := bufio.NewScanner(out); lines.Scan(); {
		devices += lines.Text() + "\n"
		if strings.Contains(devices, "</devices>") {
			return devices
		}
	}
	_ = cmd.Wait()
	t.Fatalf("%s: %s", strings.Join(argv, " "), errs.String())
	return ""
}

// nics parses libvirt XML.
func nics(t *testing.T, text string) []libvirtxml.DomainInterface {
	t.Helper()
	var list struct {
		Interfaces []libvirtxml.DomainInterface `xml:"interface"`
	}
	if err := xml.Unmarshal([]byte(text), &list); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return list.Interfaces
}

var anyMAC = regexp.MustCompile(`mac address="([^"]*)"`)

// TestPhase2: the libvirt XML of a VMI, the DHCP replies to its guest, and its status.interfaces.
func TestPhase2(t *testing.T) {
	const (
		pods    = "[{name: default, pod: {}}]"
		second  = "[{name: default, pod: {}}, {name: blue, multus: {networkName: blue}}]"
		mac     = "macAddress: '02:00:00:00:00:07'"
		options = "dhcpOptions: {bootFileName: pxe.0, tftpServerName: tftp.example, ntpServers: [192.0.2.1, 192.0.2.2], privateOptions: [{option: 240, value: extra}, {option: 224, value: x}]}"
		device  = "model: e1000, bootOrder: 1, pciAddress: '0000:81:01.0', acpiIndex: 7, state: down"
	)
	dual := []string{"10.244.0.10/24", "fd00:244::10/64"}
	for _, c := range []struct {
		name, interfaces, networks, more string
		addrs                            []string
		silent                           bool
	}{
		{"masquerade", "[{name: default, masquerade: {}, " + mac + "}]", pods, "", dual, false},
		{"masquerade of IPv6", "[{name: default, masquerade: {}}]", pods, "", dual[1:], false},
		{
			"masquerade with options", "[{name: default, masquerade: {}, " + options + "}]", pods,
			"networkInterfaceMultiqueue: true, ", dual[:1], false,
		},
		{
			"masquerade with subnets of its own", "[{name: default, masquerade: {}, " + device + "}]",
			"[{name: default, pod: {vmNetworkCIDR: 10.9.0.0/16, vmIPv6NetworkCIDR: 'fd77::/64'}}]", "", dual, false,
		},
		{"bridge", "[{name: default, bridge: {}}]", pods, "useVirtioTransitional: true, ", dual, false},
		{
			"bridge with options", "[{name: default, bridge: {}, " + mac + ", " + options + "}]", pods,
			"networkInterfaceMultiqueue: true, ", dual[:1], false,
		},
		{
			"bridge of a pod with one address", "[{name: default, bridge: {}, " + device + "}]", pods, "",
			[]string{"10.244.0.10/32"},
			false,
		},
		{"managedTap", "[{name: default, binding: {name: managed}, " + device + "}]", pods, "", dual, true},
		{
			"two bridges", "[{name: default, bridge: {}, bootOrder: 2}, {name: blue, bridge: {}, bootOrder: 1}]", second,
			"networkInterfaceMultiqueue: true, ", dual, false,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			file := writeVMI(t, c.interfaces, c.networks, "", c.more)
			kubevirt, weft := newPod(t, c.addrs...), newPod(t, c.addrs...)
			if c.networks == second {
				kubevirt.link(t, blue, "02:00:00:00:00:09", "10.7.0.5/24")
				weft.link(t, blue, "02:00:00:00:00:09", "10.7.0.5/24")
			}
			theirs, ours := kubevirt.kubevirt(t, file), weft.weft(t, file)
			want, got := nics(t, theirs), nics(t, ours)
			for i := range want {
				if d := want[i].Driver; d != nil && d.Name == "vhost" {
					d.Name = "" // so libvirt uses vhost-net only if the kernel has it
				}
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("libvirt XML (-KubeVirt +weft):\n%s", d)
			}
			if c.silent {
				return
			}
			their, our := kubevirt.asks(t, "tap0", theirs), weft.asks(t, "tap0", ours)
			if want4 := c.addrs[0] != dual[1]; (their.Ack != nil) != want4 ||
				(their.Reply != nil) != (strings.Contains(c.interfaces, "masquerade") && len(c.addrs) > 1 || !want4) {
				t.Errorf("KubeVirt's replies: %+v", their)
			}
			t.Logf("%+v", their.Ack)
			ignoreIntended(t, their, our)
			if d := cmp.Diff(their, our); d != "" {
				t.Errorf("DHCP (-KubeVirt +weft):\n%s", d)
			}
		})
	}
}

// kubevirt configures the pod by KubeVirt's code, weft by weft's; both return the hypervisor's devices.
func (p pod) kubevirt(t *testing.T, file string) (devices string) {
	t.Helper()
	must(t, program("kubevirt-net"), "phase1", file, itoa(p.pid))
	return serve(t, p.in(program("kubevirt-net"), "phase2", file)...)
}

func (p pod) weft(t *testing.T, file string) (devices string) {
	t.Helper()
	flags := []string{"--agent", "", "--binding", "managed=managedTap", "--netns", p.netns, "--state-dir", t.TempDir()}
	for _, server := range []string{"10.96.0.10", "fd00:96::a"} {
		flags = append(flags, "--nameserver", server)
	}
	for _, domain := range []string{"shop.svc.cluster.local", "svc.cluster.local", "cluster.local"} {
		flags = append(flags, "--search", domain)
	}
	must(t, append([]string{program("weft"), "vm", "phase1", file}, flags...)...)
	devices = serve(t, append([]string{program("weft"), "vm", "phase2", file}, flags...)...)
	start(t, p.in(program("weft-guest"))...)
	return devices
}

// ignoreIntended removes intended differences: weft rejects a request for another guest's address, and sends the search
// domains by DHCPv6, too.
func ignoreIntended(t *testing.T, want, got Replies) {
	t.Helper()
	if want.Other != nil && got.Other != nil {
		if want.Other.Kind != "ACK" || got.Other.Kind != "NAK" {
			t.Errorf("a request for another guest's address gets %s from KubeVirt, %s from weft", want.Other.Kind, got.Other.Kind)
		}
		*want.Other, *got.Other = Reply{}, Reply{}
	}
	for _, a := range []*Reply{got.Advertise, got.Reply} {
		const domains4, domains6 = 119, 24
		if a == nil {
			continue
		}
		if got.Ack != nil && a.Options[domains6] != got.Ack.Options[domains4] {
			t.Errorf("domains: %s by DHCPv6, %s by DHCP", a.Options[domains6], got.Ack.Options[domains4])
		}
		delete(a.Options, domains6)
	}
}

// start runs a program until the end of the test.
func start(t *testing.T, argv ...string) {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	var errs strings.Builder
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(errs.String())
		}
	})
}

// asks acts as a guest behind a tap of the pod.
func (p pod) asks(t *testing.T, tap, devices string) (out Replies) {
	t.Helper()
	mac := anyMAC.FindStringSubmatch(devices)
	if err := json.Unmarshal([]byte(p.run(t, program("kubevirt-net"), "ask", tap, mac[1])), &out); err != nil {
		t.Fatal(err)
	}
	return out
}
