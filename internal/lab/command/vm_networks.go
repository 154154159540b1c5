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

// podNetworks has the pod of a machine ask for the machine's networks, as it does in the cluster's manifests, and waits
// until the agent has attached it to them.
type podNetworks struct {
	store          *dir.Store
	namespace, pod string
}

// networkTime bounds how long that may take, networkPause is between two looks.
const (
	networkTime  = 30 * time.Second
	networkPause = 50 * time.Millisecond
)

func (p podNetworks) attach(ctx context.Context, vm model.VM) error {
	if err := p.known(vm); err != nil {
		return err
	}
	note, links, err := launch.Selections(vm)
	if err != nil {
		return err
	}
	key := store.PodKey(p.namespace, p.pod)
	if len(links) == 0 {
		note = "" // which takes the annotation away
	}
	warned, err := p.warnings()
	if err != nil {
		return err
	}
	_, err = p.store.Modify(ctx, key, store.Annotate(map[string]string{multinet.NetworksKey: note}))
	if err != nil {
		return fmt.Errorf("networks of machine %s: %w", vm.Key(), err)
	}
	ctx, cancel := context.WithTimeout(ctx, networkTime)
	defer cancel()
	for {
		has, err := p.has(key)
		if err != nil {
			return fmt.Errorf("networks of machine %s: %w", vm.Key(), err)
		}
		lacks := slices.IndexFunc(links, func(l string) bool { return !slices.Contains(has, l) })
		if lacks < 0 {
			return nil
		}
		now, err := p.warnings()
		if err != nil {
			return err
		}
		for event, says := range now {
			if warned[event] != says {
				return model.Faultf(model.CodeInvalidConf, "", "networks of machine %s: pod %s/%s: %s", vm.Key(), p.namespace,
					p.pod, says.message)
			}
		}
		select {
		case <-ctx.Done():
			return model.Faultf(model.CodeTryAgain, "the agent's log and the pod's events say why",
				"machine %s: pod %s/%s has not been attached to the network of %s: %w", vm.Key(), p.namespace, p.pod,
				links[lacks], ctx.Err())
		case <-time.After(networkPause):
		}
	}
}

// known makes sure that there are such networks.
func (p podNetworks) known(vm model.VM) error {
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
			return model.Faultf(model.CodeInvalidConf, "make it first", "network %q of machine %s: %w", nic.Name, vm.Key(), err)
		}
	}
	return nil
}

// has are the links that the pod is said to have.
func (p podNetworks) has(key store.Key) (out []string, err error) {
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

// warning is one of the pod's events, as it was at a version.
type warning struct{ version, message string }

// warnings are those that the pod has been given, by their names.
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
