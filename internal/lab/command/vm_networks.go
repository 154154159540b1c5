// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/multinet"
	"github.com/weft-net/weft/internal/vm/launch"
)

// podNetworks selects the VM's networks in the annotation of its pod, in the cluster's manifests, and waits until the
// agent has attached the pod to them.
type podNetworks struct {
	store          *dir.Store
	namespace, pod string
}

const (
	networkTimeout  = 30 * time.Second
	networkInterval = 50 * time.Millisecond // between two checks
)

func (p podNetworks) attach(ctx context.Context, vm model.VM) error {
	if err := p.checkDefinitions(vm); err != nil {
		return err
	}
	note, links, err := launch.NetworkSelections(vm)
	if err != nil {
		return err
	}
	key := store.PodKey(p.namespace, p.pod)
	if len(links) == 0 {
		note = "" // removes the annotation
	}
	warned, err := p.warnings()
	if err != nil {
		return err
	}
	_, err = p.store.Modify(ctx, key, store.Annotate(map[string]string{multinet.NetworksKey: note}))
	if err != nil {
		return fmt.Errorf("networks of VM %s: %w", vm.Key(), err)
	}
	ctx, cancel := context.WithTimeout(ctx, networkTimeout)
	defer cancel()
	for {
		attached, err := p.attachedLinks(key)
		if err != nil {
			return fmt.Errorf("networks of VM %s: %w", vm.Key(), err)
		}
		missing := slices.IndexFunc(links, func(l string) bool { return !slices.Contains(attached, l) })
		if missing < 0 {
			return nil
		}
		now, err := p.warnings()
		if err != nil {
			return err
		}
		for event, w := range now {
			if warned[event] != w {
				return model.Errorf(model.CodeInvalidConf, "", "networks of VM %s: pod %s/%s: %s", vm.Key(), p.namespace,
					p.pod, w.message)
			}
		}
		select {
		case <-ctx.Done():
			return model.Errorf(model.CodeTryAgain, "see the agent's log and the pod's events",
				"VM %s: pod %s/%s was not attached to the network of %s: %w", vm.Key(), p.namespace, p.pod, links[missing],
				ctx.Err())
		case <-time.After(networkInterval):
		}
	}
}

// checkDefinitions checks that the VM's NetworkAttachmentDefinitions exist.
func (p podNetworks) checkDefinitions(vm model.VM) error {
	for _, nic := range vm.Interfaces {
		if nic.Network.Definition == "" || nic.Absent {
			continue
		}
		key := store.Key{
			Group: "k8s.cni.cncf.io", Kind: "NetworkAttachmentDefinition", Namespace: vm.Namespace, Name: nic.Network.Definition,
		}
		if namespace, name, both := strings.Cut(nic.Network.Definition, "/"); both {
			key.Namespace, key.Name = namespace, name
		}
		if _, err := p.store.Get(key); err != nil {
			return model.Errorf(model.CodeInvalidConf, "create it first", "network %q of VM %s: %w", nic.Name, vm.Key(), err)
		}
	}
	return nil
}

// attachedLinks returns the links in the status annotation of the pod.
func (p podNetworks) attachedLinks(key store.Key) (out []string, err error) {
	o, err := p.store.Get(key)
	if err != nil {
		return nil, err
	}
	var pod struct {
		Metadata struct{ Annotations map[string]string }
	}
	if err := json.Unmarshal(o.Raw, &pod); err != nil {
		return nil, err
	}
	var all []struct{ Interface string }
	if text := pod.Metadata.Annotations[multinet.StatusKey]; text != "" {
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			return nil, fmt.Errorf("annotation %s: %w", multinet.StatusKey, err)
		}
	}
	for _, s := range all {
		out = append(out, s.Interface)
	}
	return out, nil
}

// warning is a version of an event of the pod.
type warning struct{ version, message string }

// warnings returns the pod's warning events by name.
func (p podNetworks) warnings() (map[string]warning, error) {
	all, err := p.store.List("Event")
	if err != nil {
		return nil, err
	}
	out := map[string]warning{}
	for _, o := range all {
		var e struct {
			Type, Message  string
			InvolvedObject struct{ Namespace, Name string }
		}
		if json.Unmarshal(o.Raw, &e) == nil && e.Type == "Warning" && e.InvolvedObject.Namespace == p.namespace &&
			e.InvolvedObject.Name == p.pod {
			out[o.Key.Name] = warning{o.Version, e.Message}
		}
	}
	return out, nil
}
