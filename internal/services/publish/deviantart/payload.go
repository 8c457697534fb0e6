package deviantart

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"unicode/utf8"
)

// Limits of the API.
const (
	MaxTitle = 50 // characters
	MaxTags  = 30
	// MaxFile is how large a file may be, in bytes. The API's own limits depend on the kind of the file and on the account. Files in
	// the payload itself end at the payload's limit.
	MaxFile = 1 << 30
)

// Post is the payload of a publication. Members that are absent are the account's own defaults.
type Post struct {
	Title    string   `json:"title"`
	Comments string   `json:"artist_comments,omitempty"`
	Tags     []string `json:"tags,omitempty"`
	File     File     `json:"file"`

	Mature               bool     `json:"is_mature,omitempty"`
	MatureLevel          string   `json:"mature_level,omitempty"` // strict or moderate
	MatureClassification []string `json:"mature_classification,omitempty"`
	Galleries            []string `json:"galleryids,omitempty"`
	DisplayResolution    int      `json:"display_resolution,omitempty"` // 0 (as uploaded) to 8
	AllowComments        *bool    `json:"allow_comments,omitempty"`
	AllowFreeDownload    *bool    `json:"allow_free_download,omitempty"`
	AddWatermark         *bool    `json:"add_watermark,omitempty"`
	AIGenerated          *bool    `json:"is_ai_generated,omitempty"`
	NoAI                 *bool    `json:"noai,omitempty"`
}

// File is what is uploaded: its bytes, or a URL from which they are fetched with each attempt.
type File struct {
	Name string `json:"name"`
	Data []byte `json:"data,omitempty"` // base64 in JSON
	URL  string `json:"url,omitempty"`
}

// ParsePost reads a payload. Its errors say what is wrong, for a person.
func ParsePost(payload []byte) (*Post, error) {
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.DisallowUnknownFields()
	p := &Post{}
	if err := decoder.Decode(p); err != nil {
		return nil, errors.New("the payload is no post: " + err.Error())
	}
	switch n := utf8.RuneCountInString(p.Title); {
	case n == 0 || n > MaxTitle:
		return nil, fmt.Errorf("the payload's title must have 1 to %d characters", MaxTitle)
	case len(p.Tags) > MaxTags:
		return nil, fmt.Errorf("the payload must have at most %d tags", MaxTags)
	case p.File.Name == "":
		return nil, errors.New("the payload's file must have a name")
	case (len(p.File.Data) == 0) == (p.File.URL == ""):
		return nil, errors.New("the payload's file must have either data or a url")
	case len(p.File.Data) > MaxFile:
		return nil, fmt.Errorf("the payload's file must have at most %d bytes", MaxFile)
	case p.Mature && p.MatureLevel != "strict" && p.MatureLevel != "moderate":
		return nil, errors.New("the payload's mature_level must be strict or moderate")
	case p.DisplayResolution < 0 || p.DisplayResolution > 8:
		return nil, errors.New("the payload's display_resolution must be from 0 to 8")
	}
	return p, nil
}

// submission is the form of stash/submit, without the file.
func (p *Post) submission(stack string) url.Values {
	form := url.Values{"title": {p.Title}, "stack": {stack}, "is_dirty": {"false"}}
	if p.Comments != "" {
		form.Set("artist_comments", p.Comments)
	}
	for _, tag := range p.Tags {
		form.Add("tags[]", tag)
	}
	setBool(form, "is_ai_generated", p.AIGenerated)
	setBool(form, "noai", p.NoAI)
	return form
}

// publication is the form of stash/publish.
func (p *Post) publication(item int64) url.Values {
	form := url.Values{
		"itemid": {strconv.FormatInt(item, 10)}, "is_mature": {strconv.FormatBool(p.Mature)},
		// The owner of the credentials has agreed to both.
		"agree_submission": {"true"}, "agree_tos": {"true"},
	}
	if p.Mature {
		form.Set("mature_level", p.MatureLevel)
		form["mature_classification[]"] = p.MatureClassification
	}
	if p.DisplayResolution > 0 {
		form.Set("display_resolution", strconv.Itoa(p.DisplayResolution))
	}
	for _, id := range p.Galleries {
		form.Add("galleryids[]", id)
	}
	setBool(form, "allow_comments", p.AllowComments)
	setBool(form, "allow_free_download", p.AllowFreeDownload)
	setBool(form, "add_watermark", p.AddWatermark)
	setBool(form, "is_ai_generated", p.AIGenerated)
	setBool(form, "noai", p.NoAI)
	return form
}

func setBool(form url.Values, name string, value *bool) {
	if value != nil {
		form.Set(name, strconv.FormatBool(*value))
	}
}
