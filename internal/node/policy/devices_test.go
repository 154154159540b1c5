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

// A device that a machine drives by itself is nowhere judged: while a policy selects it an ADD is refused, and what is
// there already is closed by its card, or it is said that nobody can.
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
	known, alone := device("0000:03:02.1", "net1"), device("0000:09:00.0", "net2")
	for _, g := range []model.WorkloadEndpoint{known, alone} {
		if err := w.Admit(t.Context(), g); err != nil {
			t.Errorf("without a policy: %v", err)
		}
		w.Attached(g.Attachment)
	}
	w.manifest("fast", onlyFastFriends)
	w.eventually("what nobody can close is said", func() bool {
		return strings.Contains(w.log.String(), "device=0000:09:00.0") &&
			strings.Contains(w.log.String(), "nothing on the node can cut it off")
	})
	w.eventually("the card is asked", func() bool {
		return strings.Contains(w.log.String(), "device=0000:03:02.1") && strings.Contains(w.log.String(), "link nocard")
	})
	for _, g := range []model.WorkloadEndpoint{known, alone} {
		err := w.Admit(t.Context(), g)
		var fault *model.Fault
		if !errors.As(err, &fault) || fault.Code != model.CodeTryAgain || !strings.Contains(err.Error(),
			"interface "+g.IfName+
				" of pod shop/web: network policies select it (MultiNetworkPolicy shop/fast), and the machine drives its device "+
				g.Device+" by itself") {
			t.Errorf("ADD: %v", err)
		}
	}
	w.remove("fast")
	w.eventually("without the policy it is let be", func() bool { return w.Admit(t.Context(), known, alone) == nil })
	for _, g := range []model.WorkloadEndpoint{known, alone} {
		if err := w.Release(t.Context(), g.Attachment); err != nil {
			t.Error(err)
		}
	}
}
