package deviantart

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/fairlead-dev/fairlead/internal/services/publish"
)

// inStash reports whether an item is in Sta.sh, where it is until it is published.
func (x *session) inStash(ctx context.Context, item int64) (bool, error) {
	var got struct {
		Item number `json:"itemid"`
	}
	err := x.get(ctx, fmt.Sprintf("%sstash/item/%d", api, item), &got)
	if p, ok := errors.AsType[*problem](err); ok {
		switch p.result.StatusCode {
		case http.StatusNotFound, http.StatusBadRequest: // Which of them it is, the documentation leaves open.
			return false, nil
		}
	}
	return err == nil, err
}

// findUpload looks for the item that an earlier attempt has uploaded and not lived to note; 0 when there is none.
func (x *session) findUpload(ctx context.Context) (int64, error) {
	type entry struct {
		Item     number `json:"itemid"`
		Stack    number `json:"stackid"`
		Metadata struct {
			Title string `json:"title"`
		} `json:"metadata"`
	}
	for offset, page := 0, 0; page < maxPages; page++ {
		var got struct {
			Entries []entry `json:"entries"`
			More    bool    `json:"has_more"`
			Next    int     `json:"next_offset"`
		}
		if err := x.get(ctx, fmt.Sprintf("%sstash/delta?limit=%d&offset=%d", api, deltaPage, offset), &got); err != nil {
			return 0, err
		}
		for _, e := range got.Entries {
			if e.Item != 0 || e.Stack == 0 || e.Metadata.Title != stack(x.d) {
				continue
			}
			var contents struct {
				Results []struct {
					Item number `json:"itemid"`
				} `json:"results"`
			}
			if err := x.get(ctx, fmt.Sprintf("%sstash/%d/contents", api, e.Stack), &contents); err != nil {
				return 0, err
			}
			for _, r := range contents.Results {
				if r.Item != 0 {
					return int64(r.Item), nil
				}
			}
		}
		if !got.More {
			return 0, nil
		}
		offset = got.Next
	}
	return 0, fail(publish.Permanent, "there is too much in Sta.sh to look for an earlier upload")
}

// fromGallery is the result for an item that is not in Sta.sh any more: it was published, and the gallery says as what. One that
// is in neither place is not made again.
func (x *session) fromGallery(ctx context.Context, post *Post, p progress) publish.Result {
	for offset, page := 0, 0; page < maxPages; page++ {
		var got struct {
			Results []struct {
				Deviation string `json:"deviationid"`
				Title     string `json:"title"`
				Published number `json:"published_time"` // seconds since 1970
			} `json:"results"`
			More bool `json:"has_more"`
			Next int  `json:"next_offset"`
		}
		if err := x.get(ctx, fmt.Sprintf("%sgallery/all?mature_content=true&limit=%d&offset=%d", api, galleryPage, offset), &got); err != nil {
			return resultOf(err)
		}
		for _, r := range got.Results { // The newest first.
			if time.Unix(int64(r.Published), 0).Before(p.Uploaded.Add(-clockMargin)) {
				got.More = false
				break
			}
			if r.Title == post.Title {
				return publish.Result{Class: publish.Delivered, StatusCode: http.StatusOK, ExternalID: r.Deviation}
			}
		}
		if !got.More {
			break
		}
		offset = got.Next
	}
	// A gallery may show it a little later.
	return publish.Result{Class: publish.Transient, Error: "the upload is neither in Sta.sh nor in the gallery; it is not made again"}
}
