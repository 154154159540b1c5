// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"fmt"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// reportDrift remembers, counts and logs what was decided, and reports whether anything was put back.
func (p *repairer) reportDrift(rec Record, r repairPlan, now time.Time) (repaired bool) {
	key, pod := rec.Key(), rec.pod()
	var things []string
	for _, d := range r.decided {
		p.drifts.note(key, d.Difference, d.decision, now)
		log := p.log.With("attachment", key.String(), "pod", pod.String(), "namespace", string(d.Space), "object", d.Want,
			"age", now.Sub(rec.Since()).Round(time.Second).String())
		outcome := "it was put back"
		if d.repair {
			things = append(things, d.Want)
		} else {
			outcome = "it is left as it is"
		}
		switch {
		case !d.report:
			continue
		case d.repair && !d.recurs:
			log.Info("repaired drift of an attachment", "have", d.Have)
		case !d.repair && !d.recurs:
			log.Warn("attachment differs from its plan; it is left as it is", "have", d.Have)
		default:
			log.Warn("drift of an attachment came back within ten minutes; "+outcome, "have", d.Have)
			p.driftEvent(pod, rec, d.Difference, outcome)
		}
	}
	if len(things) > 0 && p.repaired != nil {
		p.repaired(things)
	}
	return len(things) > 0
}

func (p *repairer) driftEvent(pod model.PodRef, rec Record, d state.Difference, outcome string) {
	if p.event == nil || pod.Name == "" {
		return
	}
	where := "in the pod"
	if d.Space == state.Host {
		where = "on the node"
	}
	p.event(pod, model.Event{Warning: true, Reason: "NetworkDrift", Message: fmt.Sprintf(
		"network %s, interface %s, %s: %s was removed or changed twice within ten minutes; %s", rec.Request.Network, rec.Request.IfName, where, d.Want, outcome)})
}

// pod is the record's pod, the zero value where it is none's.
func (r Record) pod() model.PodRef {
	if o := r.Request.Origin; o != nil {
		return o.Pod
	}
	var pod model.PodRef
	pod.Namespace, _ = r.Request.Arg("K8S_POD_NAMESPACE")
	pod.Name, _ = r.Request.Arg("K8S_POD_NAME")
	pod.UID, _ = r.Request.Arg("K8S_POD_UID")
	return pod
}
