// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/policy"
)

// TestDevices: policy cannot be enforced on a device that a VM drives directly: while a policy selects it an ADD is
// refused, and an existing one is disabled by its card, or the failure is logged.
func TestDevices(t *testing.T) {
	cards := t.TempDir()
	for _, d := range []string{"0000:03:00.0/net/nocard", "0000:03:02.1"} {
		if err := os.MkdirAll(filepath.Join(cards, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for from, to := range map[string]string{
		"0000:03:00.0/virtfn1": "../0000:03:02.1", "0000:03:02.1/physfn": "../0000:03:00.0",
	} {
		if err := os.Symlink(to, filepath.Join(cards, from)); err != nil {
			t.Fatal(err)
		}
	}
	w := newWorld(t)
	w.start(func(c *policy.Config) { c.Cards = cards })
	web := w.pod("shop/web", "app: web")
	device := func(pci, name string) model.WorkloadEndpoint {
		return model.WorkloadEndpoint{
			Attachment: model.AttachmentKey{Network: "fast", ContainerID: web.Attachment.ContainerID, IfName: name},
			Pod:        web.Pod, Network: "shop/fast", IfName: name,
			Netns: web.Netns, NetnsID: web.NetnsID, Device: pci,
		}
	}
	known, onlyDevice := device("0000:03:02.1", "net1"), device("0000:09:00.0", "net2")
	for _, g := range []model.WorkloadEndpoint{known, onlyDevice} {
		if err := w.Admit(t.Context(), g); err != nil {
			t.Errorf("without a policy: %v", err)
		}
		w.Attached(g.Attachment)
	}
	w.manifest("fast", onlyFastFriends)
	w.eventually("the devices that cannot be disabled are logged", func() bool {
		return strings.Contains(w.log.String(), "device=0000:09:00.0") &&
			strings.Contains(w.log.String(), "no physical function on the node can disable it")
	})
	w.eventually("the card is asked", func() bool {
		return strings.Contains(w.log.String(), "device=0000:03:02.1") && strings.Contains(w.log.String(), "link nocard")
	})
	for _, g := range []model.WorkloadEndpoint{known, onlyDevice} {
		err := w.Admit(t.Context(), g)
		var e *model.Error
		if !errors.As(err, &e) || e.Code != model.CodeTryAgain || !strings.Contains(err.Error(),
			"interface "+g.IfName+
				" of pod shop/web: network policies select it (MultiNetworkPolicy shop/fast), and the VM drives its device "+
				g.Device+" directly") {
			t.Errorf("ADD: %v", err)
		}
	}
	w.remove("fast")
	w.eventually("without the policy it is let be", func() bool { return w.Admit(t.Context(), known, onlyDevice) == nil })
	for _, g := range []model.WorkloadEndpoint{known, onlyDevice} {
		if err := w.Release(t.Context(), g.Attachment); err != nil {
			t.Error(err)
		}
	}
}
